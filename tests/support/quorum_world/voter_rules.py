"""Who votes in a simulated quorum, and what must hold where that changes (KIP-853).

The voters of a node are those that its disk names last, committed or not; in a static quorum those
of the settings. A vote, a copy and a Fetch count for a replica by its key: a node on a new disk is
another one.
"""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from metadata_topic.raft.effects import AppendEpochStart, AppendVoters, Effect, RoleChanged
from metadata_topic.raft.events import AbleToLead, Closing, Event, Resign, Started
from metadata_topic.raft.messages import (
    AddVoterRequest,
    FetchRequest,
    FetchSnapshotRequest,
    SnapshotId,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import ReplicaKey, VoterSet
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.mirror import Batch, LogMirror
from tests.support.quorum_world.plan import key_of

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode
    from tests.support.quorum_world.world import QuorumWorld

Keys = tuple[ReplicaKey, ...]


def keys_of(voters: VoterSet) -> Keys:
    """The keys of all voters."""
    return tuple(voter.key for voter in voters.voters)


def majority(keys: Keys) -> int:
    """How many of them decide."""
    return len(keys) // 2 + 1


class VoterRules:
    """See the module.

    Attributes:
        committed: who votes by what is committed, by the first offset after the record.
        commits_by: those of whom a majority has made committed what is committed last.
    """

    def __init__(self, world: "QuorumWorld") -> None:
        self.world = world
        first = world.plan.voter_set
        self._static = None if world.plan.dynamic else tuple(map(key_of, world.plan.voters))
        self.committed: list[tuple[int, VoterSet]] = [(0, first)]
        self.commits_by: Keys = self._static or keys_of(first)
        self._fetches: dict[tuple[int, ReplicaKey], tuple[int, int, int, int]] = {}
        self._epochs_began: dict[int, int] = {}
        self._validated: set[tuple[int, bytes, SnapshotId]] = set()

    def of(self, node: "QuorumNode") -> Keys:
        """Who votes by a node's disk."""
        return self._static or keys_of(node.disk.voters[1])

    @property
    def in_force(self) -> VoterSet:
        """Who votes by what is committed."""
        return self.committed[-1][1]

    @property
    def in_use(self) -> list[Keys]:
        """The voters in force, and those that a log names which are not committed."""
        if self._static is not None:
            return [self._static]
        since, voters = self.committed[-1]
        found = [keys_of(voters)]
        for node in self.world.nodes.values():
            end, said = node.disk.voters
            if end > since and keys_of(said) not in found:
                found.append(keys_of(said))
        return found

    # -- a leader -------------------------------------------------------------------------------

    def elected(self, node: "QuorumNode", effect: RoleChanged) -> None:
        """Who wins is a voter by its log, or was until a removal that it need not know of."""
        assert effect.epoch_start_offset is not None
        self._epochs_began[effect.epoch] = effect.epoch_start_offset
        if self._static is not None:
            return
        since, voters = node.disk.voters
        was = any(said.has(node.key) for _, said in node.disk.voters_by_offset)
        if not voters.has(node.key) and not (was and since > node.known_high_watermark):
            raise Violation("who is removed is not elected", f"{node}: {voters.ids} by {since}")

    def leads(self, node: "QuorumNode") -> None:
        """Validate a leader after its turn.

        It leads as a voter, or until its removal is committed.
        """
        if self._static is not None:
            return
        since, voters = node.disk.voters
        if not voters.has(node.key) and since <= node.core.leadership.high_watermark:
            raise Violation("a leader that is removed leads no longer", f"{node}: since {since}")
        if node.core.epoch >= self.world.oracle.newest_epoch:
            self._overlap(node, voters)

    def _overlap(self, node: "QuorumNode", voters: VoterSet) -> None:
        """Any majority of the newest leader's voters has one of any of those in force."""
        ours, theirs = set(keys_of(voters)), set(keys_of(self.in_force))
        most = len(ours) // 2 + len(theirs) // 2 + 2
        if len(ours ^ theirs) > 1 or most <= len(ours | theirs):
            raise Violation(
                "voters in use differ by one", f"{node}: {voters.ids}, not {self.in_force.ids}"
            )

    def resigns(self, node: "QuorumNode", event: Event, effects: list[Effect]) -> None:
        """A leader continues while it is heard, and is no removed one; asked after the step."""
        gives_up = any(
            isinstance(one, RoleChanged) and one.role is Role.RESIGNED for one in effects
        )
        if self._static is not None or not gives_up:
            return
        if isinstance(event, Resign | Closing | AbleToLead | Started):
            return  # it is told to; or it led in its life before
        since, voters = node.disk.voters
        if not voters.has(node.key) and since <= node.core.high_watermark:
            return
        if self.world.oracle.is_heard(node, more_ms=1):
            raise Violation("a leader that is heard leads on", f"{node}: {voters.ids} by {since}")

    # -- changes --------------------------------------------------------------------------------

    def appends(self, node: "QuorumNode", effect: AppendVoters | AppendEpochStart) -> None:
        """Validate what a leader is about to write of voters."""
        if isinstance(effect, AppendEpochStart):
            if effect.with_voters and keys_of(effect.voters) != self.of(node):
                raise Violation("an election changes no voters", f"{node}: {effect.voters.ids}")
            return
        oracle, core = self.world.oracle, node.core
        oracle.looks_at_disk(node)
        since, voters = node.disk.voters
        if len({*keys_of(voters)} ^ {*keys_of(effect.voters)}) > 1:
            raise Violation(
                "voters change one by one", f"{node}: {voters.ids} to {effect.voters.ids}"
            )
        if since > min(oracle.high_watermark, core.high_watermark):
            raise Violation("one change of voters at a time", f"{node}: {voters.ids} by {since}")
        began = self._epochs_began[effect.epoch]
        if oracle.committed_epoch_at.get(began) != effect.epoch:
            raise Violation(
                "voters change after a commit of the leader's own epoch",
                f"{node} in {effect.epoch} since {began}",
            )

    def wants_turn(self, node: "QuorumNode") -> None:
        """Who is going to vote has had all of the log lately."""
        led, now_ms = node.core.leadership, node.local_ms()
        request = None if led is None or led.change is None else led.change.request
        if not isinstance(request, AddVoterRequest):
            return
        key = request.voter.key
        epoch, _, _, caught_up_ms = self._fetches.get((node.id, key), (-1, -1, -1, -1))
        if epoch != node.core.epoch or now_ms - caught_up_ms > check_quorum_ms(node):
            raise Violation("a new voter has caught up", f"{node}: {key}, {caught_up_ms}")

    def hears(self, node: "QuorumNode", request: FetchRequest | FetchSnapshotRequest) -> None:
        """A leader of the same epoch is asked for what it has."""
        end, now_ms = node.core.log.end_offset, node.local_ms()
        at = node.id, request.replica
        epoch, end_then, then_ms, caught_up_ms = self._fetches.get(at, (-1, -1, -1, -1))
        if epoch != request.epoch:
            end_then = then_ms = caught_up_ms = -1
        offset = request.offset if isinstance(request, FetchRequest) else -1
        if offset >= end:
            caught_up_ms = now_ms
        elif 0 <= end_then <= offset:
            caught_up_ms = then_ms
        self._fetches[at] = request.epoch, end, now_ms, caught_up_ms

    def commits(self, node: "QuorumNode", batches: list[Batch]) -> None:
        """What is new is committed by a majority of the voters of its leader's log."""
        self.commits_by = self.of(node)
        for batch in batches:
            voters = batch.facts.voters
            if voters is not None and self._static is None:
                self.committed.append((batch.facts.end_offset, voters))
        for old, new in pairwise(one for _, one in self.committed[-2:]):
            if len({*keys_of(old)} ^ {*keys_of(new)}) > 1:
                raise Violation("voters change one by one", f"{node}: {old.ids} to {new.ids}")

    # -- what a disk says -----------------------------------------------------------------------

    def are_known(self, node: "QuorumNode") -> None:
        """What the log says of voters holds, and what was cut off it does not."""
        history, disk = node.core.history, node.disk
        known = history.latest.voters or VoterSet(())
        since, found = disk.voters
        if self._static is None and known != found:
            raise Violation(
                "voters are what the log says",
                f"{node}: {known.ids} by {history.latest_end}, not {found.ids} by {since}",
            )
        if history.latest_end > disk.end_offset:
            raise Violation(
                "voters are what the log says",
                f"{node}: {known.ids} by {history.latest_end}, the log ends at {disk.end_offset}",
            )

    def looks_at_snapshots(self, node: "QuorumNode") -> None:
        """A snapshot names the voters of its own end, not those of later."""
        if self._static is not None:
            return
        disk: LogMirror = node.disk
        for one in disk.snapshots():
            found = (node.id, disk.directory, one)
            if found in self._validated or one.end_offset > self.world.oracle.high_watermark:
                continue
            self._validated.add(found)
            expected = self.at(one.end_offset)
            voters = disk.voters_of(one)
            if voters != expected:
                raise Violation(
                    "a snapshot has the voters of its end",
                    f"{node}: {one}: {voters and voters.ids}, not {expected.ids}",
                )

    def at(self, end_offset: int) -> VoterSet:
        """Who votes by what is committed below an offset."""
        return next(said for end, said in reversed(self.committed) if end <= end_offset)


def check_quorum_ms(node: Any) -> int:
    """After so long without a majority a leader gives up."""
    return int(node.config.fetch_timeout_ms * 3 // 2)
