"""What groups take in memory is counted as a naive look at all of it counts, and stays bounded.

Clients join, assign, commit, also in transactions, leave, fall silent, and groups are deleted,
under a bound that changes. Whatever is refused, consumers that continue as before are not.
"""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.decision_builder import GroupLimits
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.offsets import ByTopic, size_of, unpack
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from tests.support.coordinator.world import World
from tests.support.rounds import IS_PROVING

names = st.sampled_from(["g", "h", "a group of a longer name"])
simple = st.sampled_from(["s", "t", "u"])
sizes = st.sampled_from([0, 30, 300, 2_000, 6_000])
partitions = st.integers(0, 5)
producers = st.integers(1, 2)
BOUNDS = (4_000, 12_000, 30_000)


def bytes_in(kept: ByTopic) -> int:
    return sum(size_of(stored) for those in kept.values() for stored in those.values())


class GroupMemory(RuleBasedStateMachine):
    """Some groups with members, and some of offsets alone."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(GroupLimits(initial_rebalance_delay_ms=0))
        self.world.budget.most = self.high = max(BOUNDS)
        self.written = 10**6

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        return self.world.state._groups

    def member(self, group: str, number: int) -> str:
        found = list(self.groups[group].members) if group in self.groups else []
        return found[number % len(found)] if found else ""

    # What clients do.

    @rule(bound=st.sampled_from(BOUNDS))
    def the_bound_is_another(self, bound: int) -> None:
        self.world.budget.most = bound

    @rule(group=names, size=sizes, version=st.sampled_from([3, 9]))
    def join(self, group: str, size: int, version: int) -> None:
        ticket = self.world.join(group, protocols=[("p", bytes(size))], version=version)
        answer = self.world.answers.get(ticket)
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.world.join(group, answer.member_id, protocols=[("p", bytes(size))], version=9)

    @rule(group=names, number=st.integers(0, 3), size=sizes)
    def join_again(self, group: str, number: int, size: int) -> None:
        member_id = self.member(group, number)
        if member_id:
            self.world.join(group, member_id, protocols=[("p", bytes(size))])

    @rule(group=names, size=sizes)
    def sync(self, group: str, size: int) -> None:
        found = self.groups.get(group)
        if found is not None and found.status is GroupStatus.COMPLETING_REBALANCE:
            given = {each: bytes(size) for each in found.members}
            for each in sorted(given, key=lambda one: one == found.leader_id):
                self.world.sync(group, each, found.generation, given, protocol_name="p")

    @rule(group=simple, chosen=st.sets(partitions, min_size=1), size=sizes)
    def commit(self, group: str, chosen: set[int], size: int) -> None:
        offsets = {("t", each): 1 for each in chosen}
        self.world.commit_offsets(group, offsets, metadata="m" * min(size, 4_000))

    @rule(group=simple, producer=producers, partition=partitions, size=sizes)
    def commit_in_transaction(self, group: str, producer: int, partition: int, size: int) -> None:
        cls = request(ApiKey.TXN_OFFSET_COMMIT).cls
        slot = cls.Topics.Partitions(
            partition_index=partition,
            committed_offset=7,
            committed_metadata="m" * min(size, 4_000),
        )
        asked = cls(group_id=group, topics=[cls.Topics(name="t", partitions=[slot])])
        state = self.world.state
        decision = state.commit_transaction_offsets(1, asked, now=self.world.now)
        for record in decision.records:
            self.written += 1
            state.replay(record.key, record.value, offset=self.written, producer_id=producer)

    @rule(producer=producers, committed=st.booleans())
    def end_transaction(self, producer: int, committed: bool) -> None:
        self.world.state.replay_marker(producer, committed=committed)

    @rule(group=names, number=st.integers(0, 3))
    def leave(self, group: str, number: int) -> None:
        member_id = self.member(group, number)
        if member_id:
            self.world.send_leave(group, (member_id, None))

    @rule(group=st.one_of(names, simple))
    def delete(self, group: str) -> None:
        self.world.ask(lambda each: self.world.state.delete_group(each, group, now=self.world.now))

    @rule(ms=st.sampled_from([1_000, 12_000, 70_000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def the_topic_is_deleted(self) -> None:
        self.world.delete_topics({"t": bytes(16)})

    # What must hold.

    @precondition(lambda self: any(one in self.groups for one in ("s", "t", "u")))
    @rule(data=st.data())
    def an_offset_is_committed_again(self, data: Any) -> None:
        kept = {
            (group, partition): stored
            for group in ("s", "t", "u")
            for partition, stored in self.world.state._offsets.of_group(group).get("t", {}).items()
        }
        if not kept:
            return
        group, partition = data.draw(st.sampled_from(sorted(kept)))
        note = unpack(kept[group, partition]).committed.metadata
        before = self.world.state.kept_bytes
        ticket = self.world.commit_offsets(group, {("t", partition): 8}, metadata=note)
        assert self.world.commit_errors(ticket) == [ErrorCode.NONE]
        assert self.world.state.kept_bytes == before

    @invariant()
    def what_is_kept_is_counted(self) -> None:
        offsets = self.world.state._offsets
        pending = sum(
            bytes_in(kept) for those in offsets._pending.values() for kept in those.values()
        )
        lasting = sum(map(bytes_in, offsets.groups.values()))
        for group in self.groups.values():
            twin = ClassicGroup(group.group_id, since_ms=None)
            for member_id in group.pending:
                twin.await_member(member_id, 0)
            lasting += twin.kept_bytes + sum(each.kept_bytes for each in group.members.values())
        assert self.world.state.kept_bytes == lasting + pending
        members = sum(len(group.members) for group in self.groups.values())
        always = 100 * offsets.count + 2_000 * members
        assert lasting <= self.high * 5 // 4 + always

    def teardown(self) -> None:
        """Everybody is gone: nothing is counted that is not there."""
        for producer in (1, 2):
            self.world.state.replay_marker(producer, committed=False)
        self.world.advance(2_000_000)
        self.world.wall_ms += 2 * self.world.limits.offsets_retention_ms
        self.world.expire()
        assert not self.groups
        assert self.world.state.kept_bytes == 0


GroupMemory.TestCase.settings = settings(
    max_examples=300 if IS_PROVING else 40, stateful_step_count=40, deadline=None
)
TestGroupMemory = pytest.mark.rounds(seconds=5)(GroupMemory.TestCase)
