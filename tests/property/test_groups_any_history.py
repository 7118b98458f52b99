"""Any history of a group keeps its promises: a naive shard, clients that do what they like.

After each step: counts agree with members, timers with deadlines, offsets with the log; a
generation never falls, and no partition has two owners in one. At the end each parked request has
been answered, once.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.decision import Ticket, TimerKey, TimerKind
from broker.coordinator.group.decision_builder import GroupLimits
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.offsets import size_of
from broker.coordinator.group.records import key_group, read_offset_value
from kafka_protocol.errors import ErrorCode
from tests.support.coordinator.world import World
from tests.support.rounds import IS_PROVING

GROUP = "g"
PARTITIONS = range(4)
CLIENTS = 4
SESSION_MS, REBALANCE_MS = 10_000, 15_000
PROTOCOLS = ([("a", b"")], [("a", b"1"), ("b", b"")], [("b", b""), ("a", b"")], [("b", b"2")])
LOST = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@dataclass
class Client:
    """What a client knows; numbers 0 and 1 are static members."""

    number: int
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] = ()
    protocol: str | None = None

    @property
    def instance_id(self) -> str | None:
        return f"i{self.number}" if self.number < 2 else None


clients = st.integers(0, CLIENTS - 1)


class GroupHistory(RuleBasedStateMachine):
    """One group under clients that do what they like."""

    def __init__(self) -> None:
        super().__init__()
        limits = GroupLimits(initial_rebalance_delay_ms=1_000, group_size_max=3)
        self.world = World(limits)
        self.clients = [Client(number) for number in range(CLIENTS)]
        self.asked: dict[Ticket, tuple[Client, str]] = {}
        self.seen: set[Ticket] = set()
        self.owners: dict[tuple[int, str], str] = {}
        self.generation = 0

    @property
    def group(self) -> ClassicGroup | None:
        return self.world.state._groups.get(GROUP)

    # What clients do.

    @rule(number=clients, protocols=st.sampled_from(PROTOCOLS), version=st.sampled_from([3, 8, 9]))
    def join(self, number: int, protocols: Any, version: int) -> None:
        self._join(number, self.clients[number].member_id, protocols, version)

    @rule(number=clients, protocols=st.sampled_from(PROTOCOLS), version=st.sampled_from([3, 8, 9]))
    def join_anew(self, number: int, protocols: Any, version: int) -> None:
        self._join(number, "", protocols, version)

    def _join(self, number: int, member_id: str, protocols: Any, version: int) -> None:
        client = self.clients[number]
        ticket = self.world.join(
            GROUP,
            member_id,
            instance_id=client.instance_id,
            protocols=protocols,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            version=version,
        )
        self.asked[ticket] = (client, "join")

    @rule(number=clients, shares=st.permutations(list(PARTITIONS)))
    def sync(self, number: int, shares: list[int]) -> None:
        client = self.clients[number]
        given: dict[str, list[str]] = {}
        for place, partition in enumerate(shares):
            if client.leads:
                whose = client.leads[place % len(client.leads)]
                given.setdefault(whose, []).append(str(partition))
        ticket = self.world.sync(
            GROUP,
            client.member_id,
            client.generation,
            {whose: ",".join(each).encode() for whose, each in given.items()},
            instance_id=client.instance_id,
            protocol_name=client.protocol,
            version=4,
        )
        self.asked[ticket] = (client, "sync")

    @rule(order=st.permutations(list(range(CLIENTS))), count=st.integers(1, CLIENTS))
    def those_join_that_should(self, order: list[int], count: int) -> None:
        """Without this, few histories would get far: well-behaved clients join again."""
        self.world.fails_appends = None
        for number in order[:count]:
            self._join(number, self.clients[number].member_id, PROTOCOLS[1], 9)
        self._learn()
        for number in order[:count]:
            if self.clients[number].generation == -1:
                self._join(number, self.clients[number].member_id, PROTOCOLS[1], 9)
        self.world.advance(2_000)

    @rule(order=st.permutations(list(range(CLIENTS))), count=st.integers(1, CLIENTS))
    def those_sync_that_should(self, order: list[int], count: int) -> None:
        """Likewise; some are missing."""
        for number in order[:count]:
            self.sync(number, list(PARTITIONS))

    @rule(number=clients)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        self.world.heartbeat(
            GROUP, client.member_id, client.generation, instance_id=client.instance_id
        )

    @rule(number=clients, by_instance=st.booleans())
    def leave(self, number: int, by_instance: bool) -> None:
        client = self.clients[number]
        member_id = "" if by_instance else client.member_id
        ticket = self.world.send_leave(GROUP, (member_id, client.instance_id))
        self.asked[ticket] = (client, "leave")

    @rule(number=clients, partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 9))
    def commit(self, number: int, partition: int, offset: int) -> None:
        client = self.clients[number]
        ticket = self.world.commit_offsets(
            GROUP,
            {("t", partition): offset},
            member_id=client.member_id,
            generation=client.generation,
            instance_id=client.instance_id,
        )
        self.asked[ticket] = (client, "commit")

    # What happens to the coordinator.

    @rule(ms=st.sampled_from([0, 1, 999, 1_000, 5_000, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)

    @precondition(lambda self: not self.world.holds_commits)
    @rule()
    def commits_are_slow(self) -> None:
        self.world.holds_commits = True

    @precondition(lambda self: self.world.holds_commits)
    @rule()
    def commits_come(self) -> None:
        self.world.commit()

    @precondition(lambda self: self.world.holds_commits)
    @rule(error=st.sampled_from(LOST))
    def commits_fail(self, error: ErrorCode) -> None:
        self.world.fail_commits(error)

    @rule(error=st.sampled_from([None, *LOST]))
    def appends_fail_or_work(self, error: ErrorCode | None) -> None:
        self.world.fails_appends = error

    @precondition(lambda self: self.group is not None and not self.group.members)
    @rule()
    def offsets_expire(self) -> None:
        self.world.wall_ms += self.world.limits.offsets_retention_ms
        self.world.expire()
        if self.group is None:
            self.generation = 0
            self.owners.clear()

    @rule()
    def coordinator_restarts(self) -> None:
        self.world.commit()
        self._learn()
        old = self.world
        for ticket, answer in old.state.unload():
            old.tell(ticket, answer)
        self._all_answered()
        self.world = old.restarted()
        self.asked.clear()
        self.seen.clear()
        for client in self.clients:
            client.leads = ()
        # A generation that nobody was assigned to is not known any more.
        self.generation = 0 if self.group is None else self.group.generation

    # What must hold.

    @invariant()
    def answers_are_sound(self) -> None:
        self._learn()

    @invariant()
    def what_is_kept_is_counted(self) -> None:
        group, offsets = self.group, self.world.state._offsets
        kept = sum(
            size_of(stored)
            for by_topic in offsets.groups.values()
            for partitions in by_topic.values()
            for stored in partitions.values()
        )
        if group is not None:
            twin = ClassicGroup(group.group_id, since_ms=None)
            for member_id in group.pending:
                twin.await_member(member_id, 0)
            members = sum(each.kept_bytes for each in group.members.values())
            kept += twin.kept_bytes + members
        assert self.world.state.kept_bytes == kept

    def _learn(self) -> None:
        """Let clients read their answers, and look whether these agree with each other."""
        for ticket in sorted(set(self.asked) & set(self.world.answers) - self.seen):
            self.seen.add(ticket)
            client, what = self.asked[ticket]
            answer = self.world.answers[ticket]
            if what == "join":
                self._joined(client, answer)
            elif what == "sync" and answer.error_code == ErrorCode.NONE:
                self._assigned(client, answer)

    def _joined(self, client: Client, answer: Any) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        if answer.error_code != ErrorCode.NONE:
            return
        client.member_id, client.generation = answer.member_id, answer.generation_id
        client.protocol = answer.protocol_name
        client.leads = ()
        group = self.group
        if answer.leader == answer.member_id and not answer.skip_assignment and answer.members:
            client.leads = tuple(each.member_id for each in answer.members)
            assert answer.member_id in client.leads
            waits = group is not None and group.status is GroupStatus.COMPLETING_REBALANCE
            if group is not None and waits and group.generation == answer.generation_id:
                assert set(client.leads) >= set(group.members)

    def _assigned(self, client: Client, answer: Any) -> None:
        whose = client.instance_id or client.member_id
        for partition in answer.assignment.decode().split(","):
            if partition:
                owner = self.owners.setdefault((client.generation, partition), whose)
                assert owner == whose, "two owners in one generation"

    @invariant()
    def generation_never_falls(self) -> None:
        if self.group is None:
            self.generation = 0
            return
        assert self.group.generation >= self.generation
        self.generation = self.group.generation

    @invariant()
    def counts_agree_with_members(self) -> None:
        group = self.group
        if group is None:
            return
        members = group.members
        assert group.joins == sum(each.join_ticket is not None for each in members.values())
        assert (group.status is GroupStatus.EMPTY) <= (not members)
        assert (group.leader_id in members) if members else group.leader_id is None
        assert not set(group.pending) & set(members)
        assert set(group.pending_sync) <= set(members)
        assert group.static_members == {
            each.instance_id: name for name, each in members.items() if each.instance_id
        }
        supported = Counter(name for each in members.values() for name in each.protocol_names())
        assert group._supported == dict(supported)
        waits = any(each.sync_ticket is not None for each in members.values())
        assert not waits or group.status is GroupStatus.COMPLETING_REBALANCE

    @invariant()
    def timers_agree_with_deadlines(self) -> None:
        timers = self.world.timers
        group = self.group
        if group is None:
            assert not timers
            return
        sessions = {key.member_id for key in timers if key.kind is TimerKind.SESSION}
        assert sessions <= set(group.members) | set(group.pending)
        assert set(group.pending) <= sessions
        for name, member in group.members.items():
            assert timers.get(TimerKey(GROUP, TimerKind.SESSION, name)) == member.timer_ms
            is_safe = member.timer_ms is not None and member.timer_ms <= member.deadline_ms
            assert is_safe or member.waits_by_request
        joining = group.status is GroupStatus.PREPARING_REBALANCE
        assert (TimerKey(GROUP, TimerKind.JOIN, "") in timers) == joining
        assert (TimerKey(GROUP, TimerKind.SYNC, "") in timers) == bool(group.pending_sync)

    @invariant()
    def offsets_are_those_of_the_log(self) -> None:
        twin: dict[tuple[str, int], tuple[int, int]] = {}
        for _, record in self.world.log:
            if record.key[:2] == b"\0\1":
                assert key_group(record.key)[0] == GROUP
                place = ("t", int.from_bytes(record.key[-4:], "big"))
                twin.pop(place, None)
                if record.value is not None:
                    twin[place] = (0, read_offset_value(record.value).offset)
        assert self.world.fetch(GROUP) == twin

    @invariant()
    def restart_knows_a_stable_group(self) -> None:
        group = self.group
        if group is None or group.status is not GroupStatus.STABLE or self.world.holds_commits:
            return
        if self.world.wrote_in_vain:
            return
        live, again = self.world.describe(GROUP), self.world.restarted().describe(GROUP)
        assert again.group_state == live.group_state
        assert sorted(again.members, key=repr) == sorted(live.members, key=repr)

    def teardown(self) -> None:
        """Everybody falls silent: in the end nobody waits."""
        self.world.fails_appends = None
        self.world.commit()
        self.world.advance(400_000)
        self.answers_are_sound()
        self._all_answered()
        assert not self.world.timers
        assert self.group is None or self.group.status is GroupStatus.EMPTY

    def _all_answered(self) -> None:
        waiting = set(self.asked) - set(self.world.answers)
        assert not waiting, [self.asked[each] for each in waiting]


GroupHistory.TestCase.settings = settings(
    max_examples=300 if IS_PROVING else 40, stateful_step_count=40, deadline=None
)
TestGroupHistory = pytest.mark.rounds(seconds=5)(GroupHistory.TestCase)
