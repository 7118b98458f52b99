"""Faults of the simulated quorum: those of the core's world, and those of machines and clocks."""

import errno
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from metadata_topic.raft.roles import Role
from tests.support.quorum_world.plan import VOTER_FAULTS, key_of
from tests.support.raft.faults import Fault, Faults

VOTERS_REST_US = 10_000_000
COPY_IS_OLD_US = 2_000_000
LATE_US = 60_000_000
"""So much later than the first nodes the others read where a voter has moved."""


class QuorumFaults(Faults):
    """Lets them happen in a world."""

    _world: Any
    _voters_rest_until = 0

    def happens(self, coming: Fault) -> None:
        """Faults of voters leave time in which a quorum comes together again."""
        if coming.kind in VOTER_FAULTS and self._world.now_us < self._voters_rest_until:
            others = [one for one in self._world.plan.kinds if one not in VOTER_FAULTS]
            others = others or ["wall_jump"]
            coming = replace(coming, kind=others[coming.number % len(others)])
        super().happens(coming)

    def counts(self, kind: str) -> None:
        """A voter has met one."""
        super().counts(kind)
        self._voters_rest_until = self._world.now_us + VOTERS_REST_US

    def _target(self, coming: Fault) -> Any:
        """Faults of voters are seldom for others."""
        voters = self._world.plan.voters
        if coming.kind in VOTER_FAULTS and not coming.of_leader:
            return self._world.nodes[voters[int(coming.place * len(voters))]]
        return super()._target(coming)

    def _power_cut(self, node: Any, coming: Fault) -> None:
        self._world.crash_for(node, coming.for_ms, power=True)

    def _power_cut_all(self, node: Any, coming: Fault) -> None:
        for other in self._world.nodes.values():
            self._world.crash_for(other, coming.for_ms, power=True)

    def _crash_within_a_step(self, node: Any, coming: Fault) -> None:
        if node.up:
            node.crash_after = int(coming.part * 6)
            node.power_goes = coming.number % 2 == 0
            node.down_ms = coming.for_ms

    def _crash_in_disk(self, node: Any, coming: Fault) -> None:
        """Within its next changes of the disk; a node that is down, within those of its start."""
        changes = 1 + int(coming.part**2 * 60)
        node.power_goes = coming.number % 3 != 0
        node.down_ms = coming.for_ms
        if node.up and node.process is not None:
            node.process.disk.end_after(changes)
        if not node.up or coming.number % 4 == 1:
            node.start_ends_after = 1 + changes // 2

    def _broken_disk(self, node: Any, coming: Fault) -> None:
        some = ({"fsync"}, {"append"}, {"rename", "fsync_path"}, {"read_at"}, {"open_read"})
        operations = some[int(coming.part * len(some))]
        self._fail_disk(node, coming, errno.EIO, operations)

    def _full_disk(self, node: Any, coming: Fault) -> None:
        operations = {"append", "write_at", "open_append", "open_empty", "make_dirs"}
        self._fail_disk(node, coming, errno.ENOSPC, operations)

    def _fail_disk(self, node: Any, coming: Fault, error: int, operations: set[str]) -> None:
        until = self._world.now_us + coming.for_ms * 1000
        node.disk_fault = (until, error, frozenset(operations))

    def _wall_jump(self, node: Any, coming: Fault) -> None:
        node.clock.wall_offset_ms += int((coming.part - 0.5) * 2 * 40_000_000)

    def _resign(self, node: Any, coming: Fault) -> None:
        if node.leads:
            world = self._world
            world.at_node(world.now_us, node, node.replica.driver.resign, "a fault says so")

    def _close(self, node: Any, coming: Fault) -> None:
        if node.up and node.replica is not None and not node.closing:
            self._world.at_node(self._world.now_us, node, node.close)
            self._world.expect_closed(node)

    def _lose_disk(self, node: Any, coming: Fault) -> None:
        """A static voter whose disk is lost votes again at once: as docs/controllers.md has it."""
        world = self._world

        def lose() -> None:
            self.counts("lose_disk")
            world.crash_for(node, coming.for_ms)
            world.lose_disk(node)

        if world.plan.dynamic or node.id not in world.plan.voters:
            super()._lose_disk(node, coming)
        else:
            self._once_safe(node, lose)

    def _old_copy(self, node: Any, coming: Fault) -> None:
        """Its directory is copied while it is down, or such a copy is put back."""
        world, had_one = self._world, node.copy is not None
        is_voter = node.id in world.plan.voters

        def put_back() -> None:
            world.crash_for(node, coming.for_ms)
            if node.copy is not None:
                node.put_copy_back()
                if is_voter:
                    self.counts("old_copy")

        if not had_one or coming.part < 0.3:
            world.crash_for(node, coming.for_ms)
            if not node.has_lost_vote:
                node.copy = node.machine.copy_files()
        if is_voter:
            world.at(world.now_us + COPY_IS_OLD_US, self._once_safe, node, put_back)
        elif had_one:
            put_back()

    def _once_safe(self, node: Any, fn: Callable[[], None], looks: int = 200) -> None:
        """Wait until all others have what was committed, as a person does, but not for ever."""
        world = self._world
        if not world.is_disturbed or not looks:
            return
        if world.now_us >= self._voters_rest_until and self._can_do_without(node):
            world.tell(f"{node} can be done without")
            fn()
        else:
            world.at(world.now_us + 100_000, self._once_safe, node, fn, looks - 1)

    def _can_do_without(self, node: Any) -> bool:
        """Whether all the other voters have all that was committed, and follow one of them.

        Then a disk that has forgotten votes and records takes nothing with it.
        """
        world, leader = self._world, self._world.leader
        others = [world.nodes[one] for one in world.plan.voters if one != node.id]
        if leader not in others or len(others) < len(world.plan.voters) // 2 + 1:
            return False
        core = leader.core
        voters = {key_of(one) for one in world.plan.voters}
        return all(
            world.oracle.who(one.key) in voters  # not one that lost its disk, and its vote
            and one.up
            and one.replica is not None
            and (one is leader or one.core.role is Role.FOLLOWER)
            and one.core.epoch == core.epoch
            and one.disk.election is not None
            and one.disk.election.epoch == core.epoch
            and one.disk.flushed_end == core.log.end_offset == core.high_watermark
            for one in others
        )

    def _lose_vote(self, node: Any, coming: Fault) -> None:
        world = self._world
        if node.id in world.plan.voters and not node.disk_number:
            world.crash_for(node, coming.for_ms)
            if _can_tell(node, is_alone=len(world.plan.voters) == 1):
                self.counts("lose_vote")
                node.lose_vote()

    def _move(self, node: Any, coming: Fault) -> None:
        """A static voter listens elsewhere; all are restarted, as docs/controllers.md has it.

        So many soon that with it they are a majority; the others after a while, in which they have
        to be told.
        """
        world = self._world
        if world.plan.dynamic or node.id not in world.plan.voters:
            self._take_address(node, coming)
            return
        if any(one.has_old_settings for one in world.nodes.values() if one.up):
            return  # they are still at it
        self.counts("move")
        dice = Random(f"quorum-move-{world.plan.seed}-{coming.number}")
        if coming.part < 0.5:
            world.crash_for(node, coming.for_ms)
        world.addresses.move(node, self._heir(node, dice))
        others = [one for one in world.plan.voters if one != node.id]
        soon = dice.sample(others, len(world.plan.voters) // 2)
        rest = [one for one in world.nodes if one not in soon]
        late = dice.sample(rest, len(rest))
        late_us = LATE_US if len(world.plan.voters) > 2 else 0
        at_us, gap_us = world.now_us, 200_000 + int(dice.random() * 1_500_000)
        for other in (*soon, *late):
            at_us += gap_us + (late_us if other == late[0] else 0)
            world.at(at_us, self._learn, world.nodes[other])

    def _learn(self, node: Any) -> None:
        world = self._world
        if world.is_disturbed and node.up and node.has_old_settings:
            world.crash_for(node, 50)

    def _take_address(self, node: Any, coming: Fault) -> None:
        """Where a node listens another is met for a while, or nobody."""
        world = self._world
        dice = Random(f"quorum-move-{world.plan.seed}-{coming.number}")
        world.addresses.take(node, self._heir(node, dice))
        until_us = world.now_us + coming.for_ms * 2000
        world.at(until_us, world.addresses.give_back, node)

    def _heir(self, node: Any, dice: Random) -> int | None:
        others = [one for one in self._world.nodes if one != node.id]
        return dice.choice(others) if others and dice.random() < 0.5 else None

    def _snapshot(self, node: Any, coming: Fault) -> None:
        if node.up and node.replica is not None:
            self._world.at_node(self._world.now_us, node, node.replica.snapshot, lambda _made: None)


def _can_tell(node: Any, *, is_alone: bool) -> bool:
    """Whether a start without quorum-state can go well.

    With nothing in the log nobody could tell that it is missing. A sole voter goes on in the epoch
    after its log's last one: it leads one twice of which it has nothing that a power cut leaves.
    """
    disk = node.disk
    last, election = disk.batch_ending_at(disk.flushed_end), disk.election
    if last is None:
        return False
    return not is_alone or election is None or last.facts.epoch >= election.epoch
