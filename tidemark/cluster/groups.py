"""Questions about groups: brokers list them, their coordinators know the rest.

A coordinator that is moving, or is still reading its log, is asked again within the asker's
deadline, as leaders are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from kafka_client.blocking import BlockingClient, ClusterError
from kafka_protocol.errors import ErrorCode, TidemarkError
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster.asker import Asker
from pipeline.cluster.cluster import NotNowError, name_of
from pipeline.cluster.questions import EARLIEST, LATEST, list_offsets
from tidemark.cluster.asking import RefusedError

ACTIVE: Final = frozenset(
    ("Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
)
"""States of a group with members: its offsets are theirs."""
_CONSUMER: Final = "consumer"
_ASSIGNMENT_VERSION_MAX: Final = 3
_FIND_COORDINATOR, _LIST, _DESCRIBE, _DELETE, _FETCH, _COMMIT = 4, 5, 6, 2, 9, 9
_DESCRIBE_CONSUMER: Final = 0
_CLASSIC: Final = "classic"
_NOT_NOW: Final = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)


class Listed(NamedTuple):
    """A group as a broker lists it."""

    group: str
    type: str
    protocol: str
    state: str


class Member(NamedTuple):
    """A member of a group.

    Attributes:
        assigned: the partitions that it reads; None where that is not known, for it is no consumer.
    """

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: frozenset[TopicPartition] | None


class Coordinator(NamedTuple):
    """The node that coordinates a group."""

    host: str
    port: int
    id: int

    def __str__(self) -> str:
        """The text that Kafka's tool shows."""
        return f"{self.host}:{self.port} ({self.id})"


@dataclass(frozen=True, slots=True)
class Described:
    """A group as its coordinator describes it.

    Attributes:
        strategy: by which its members share the partitions; "" without members.
    """

    group: str
    coordinator: Coordinator
    state: str
    strategy: str
    members: tuple[Member, ...]


class Groups:
    """Asks about groups; each method raises ClusterError where no broker answers in time."""

    def __init__(self, client: BlockingClient, deadline_s: float) -> None:
        """Look at the cluster once.

        Args:
            client: asks.
            deadline_s: how long a question is asked again while a coordinator, or a leader, moves.
        """
        self._client, self._asker = client, Asker(client, deadline_s)
        self._asker.look(deadline_s=0)  # without a listener, no address is asked again

    def all(self) -> list[Listed]:
        """The groups of all brokers, by name."""
        request = codec.request(ApiKey.LIST_GROUPS).cls

        def ask() -> list[Listed]:
            found = []
            for node in self._asker.cluster.brokers:
                answer = self._asker.ask(node, ApiKey.LIST_GROUPS, _LIST, request())
                _check(answer.error_code, f"groups of broker {node}")
                found += [
                    Listed(one.group_id, one.group_type, one.protocol_type, one.group_state)
                    for one in answer.groups
                ]
            return sorted(found)

        return self._asker.again(ask)

    def describe(self, group: str) -> Described:
        """State and members.

        Raises:
            ClusterError: there is no such group; names the nearest.
        """
        body = codec.request(ApiKey.DESCRIBE_GROUPS).cls(groups=[group])

        def ask() -> tuple[int, Any]:
            node = self._coordinator(group)
            answer = self._asker.ask(node, ApiKey.DESCRIBE_GROUPS, _DESCRIBE, body)
            (found,) = answer.groups
            if found.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                _check(found.error_code, f"group {group}")
            return node, found

        node, found = self._asker.again(ask)
        if found.error_code:
            return self._of_another_type(group)
        members = tuple(_member(one, found.protocol_type) for one in found.members)
        where = self._address(node)
        return Described(group, where, found.group_state, found.protocol_data, members)

    def _of_another_type(self, group: str) -> Described:
        """A group that is no classic one; of KIP-848's it is known who reads what, too."""
        types = {one.group: one.type for one in self.all()}
        if (kind := types.get(group, _CLASSIC)) == _CLASSIC:
            raise self._no_group(group, types)
        if kind != _CONSUMER:
            raise ClusterError(
                f"group {group} is of type {kind}: Kafka's kafka-{kind}-groups.sh describes it"
            )
        body = codec.request(ApiKey.CONSUMER_GROUP_DESCRIBE).cls(group_ids=[group])

        def ask() -> tuple[int, Any]:
            node = self._coordinator(group)
            key = ApiKey.CONSUMER_GROUP_DESCRIBE
            (found,) = self._asker.ask(node, key, _DESCRIBE_CONSUMER, body).groups
            _check(found.error_code, f"group {group}")
            return node, found

        node, found = self._asker.again(ask)
        members = tuple(
            Member(one.member_id, one.instance_id, one.client_id, one.client_host, _given(one))
            for one in found.members
        )
        where = self._address(node)
        return Described(group, where, found.group_state, found.assignor_name, members)

    def _address(self, node: int) -> Coordinator:
        return Coordinator(*self._asker.cluster.brokers.get(node, ("?", 0)), node)

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that the group has committed: the next offset to read, by partition."""
        cls = codec.request(ApiKey.OFFSET_FETCH).cls
        body = cls(groups=[cls.Groups(group_id=group, topics=None)])

        def ask() -> dict[TopicPartition, int]:
            answer = self._asker.ask(self._coordinator(group), ApiKey.OFFSET_FETCH, _FETCH, body)
            (found,) = answer.groups
            _check(found.error_code, f"offsets of group {group}")
            return {
                TopicPartition(topic.name, one.partition_index): one.committed_offset
                for topic in found.topics
                for one in topic.partitions
                if one.committed_offset >= 0
            }

        return self._asker.again(ask)

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str]:
        """Set offsets of a group without members; returns why some were not set.

        Raises:
            ClusterError: the group has members meanwhile.
        """
        cls = codec.request(ApiKey.OFFSET_COMMIT).cls
        topics: dict[str, Any] = {}
        for partition, offset in sorted(offsets.items()):
            topic = topics.setdefault(partition.topic, cls.Topics(name=partition.topic))
            topic.partitions.append(
                cls.Topics.Partitions(
                    partition_index=partition.partition,
                    committed_offset=offset,
                    committed_metadata="",
                )
            )
        body = cls(group_id=group, member_id="", topics=list(topics.values()))

        def ask() -> dict[TopicPartition, str]:
            answer = self._asker.ask(self._coordinator(group), ApiKey.OFFSET_COMMIT, _COMMIT, body)
            refused: dict[TopicPartition, str] = {}
            for topic in answer.topics:
                for one in topic.partitions:
                    if one.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                        raise active_group(group, "no longer Empty")
                    place = TopicPartition(topic.name, one.partition_index)
                    try:
                        _check(one.error_code, f"the offset of {place} of group {group}")
                    except RefusedError as error:
                        refused[place] = str(error)
            return refused

        return self._asker.again(ask)

    def delete(self, group: str) -> None:
        """Forget a group without members, with its offsets.

        Raises:
            ClusterError: it has members, or is not there.
        """
        body = codec.request(ApiKey.DELETE_GROUPS).cls(groups_names=[group])

        def ask() -> int:
            answer = self._asker.ask(self._coordinator(group), ApiKey.DELETE_GROUPS, _DELETE, body)
            code: int = answer.results[0].error_code
            if code == ErrorCode.NON_EMPTY_GROUP:
                raise RefusedError(f"group {group} has members; stop its consumers", code)
            if code != ErrorCode.GROUP_ID_NOT_FOUND:
                _check(code, f"group {group}")
            return code

        if self._asker.again(ask):
            raise self._no_group(group, [one.group for one in self.all()])

    # -- partitions -------------------------------------------------------------------------------

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic.

        Raises:
            UnknownTopicError: there is none; names the nearest.
        """
        return [TopicPartition(topic, n) for n in sorted(self._asker.cluster.topic(topic).leaders)]

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Ends of logs (exclusive) of those partitions that have a leader now."""
        return self._listed(dict.fromkeys(partitions, LATEST))

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """First offsets of logs of those partitions that have a leader now."""
        return self._listed(dict.fromkeys(partitions, EARLIEST))

    def first_since(
        self, partitions: Iterable[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int]:
        """The first record at or after a time, of each partition that has one; ms since 1970."""
        found = self._listed(dict.fromkeys(partitions, time_ms))
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def _listed(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        topics = self._asker.cluster.topics
        led = {
            one: time_ms
            for one, time_ms in times_ms.items()
            if one.topic in topics and topics[one.topic].leaders.get(one.partition, -1) >= 0
        }
        return {one: found.offset for one, found in list_offsets(self._asker, led).items()}

    # -- coordinators -----------------------------------------------------------------------------

    def _coordinator(self, group: str) -> int:
        """The node that coordinates a group."""
        body = codec.request(ApiKey.FIND_COORDINATOR).cls(coordinator_keys=[group])
        answer = self._client.ask_any(ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR, body)
        (found,) = answer.coordinators
        _check(found.error_code, f"coordinator of group {group}")
        coordinator: int = found.node_id
        return coordinator

    def _no_group(self, group: str, there: Iterable[str]) -> ClusterError:
        near = get_close_matches(group, list(there), 1, 0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        return ClusterError(f"there is no group {group!r}{hint}")


def active_group(group: str, state: str) -> ClusterError:
    """The refusal to change offsets that members of a group hold; nearly Kafka's sentence."""
    return ClusterError(
        f"Assignments can only be reset if the group '{group}' is inactive, but the current state "
        f"is {state}; stop its consumers"
    )


def _member(one: Any, protocol_type: str) -> Member:
    assigned = None
    if protocol_type == _CONSUMER:
        assigned = _assigned(bytes(one.member_assignment))
    return Member(one.member_id, one.group_instance_id, one.client_id, one.client_host, assigned)


def _given(member: Any) -> frozenset[TopicPartition]:
    """The partitions that the coordinator has given to a member of a group of KIP-848."""
    return frozenset(
        TopicPartition(one.topic_name, number)
        for one in member.assignment.topic_partitions
        for number in one.partitions
    )


def _assigned(assignment: bytes) -> frozenset[TopicPartition] | None:
    """The partitions that a consumer's leader has given it: bytes of clients, not validated."""
    if not assignment:
        return frozenset()
    version = min(int.from_bytes(assignment[:2], "big"), _ASSIGNMENT_VERSION_MAX)
    try:
        said, _ = codec.message("ConsumerProtocolAssignment").decode(assignment, version, 2)
    except TidemarkError:
        return None
    return frozenset(
        TopicPartition(one.topic, number)
        for one in said.assigned_partitions
        for number in one.partitions
    )


def _check(code: int, what: str) -> None:
    """Raise what a code says.

    Raises:
        NotNowError: the coordinator moves: ask again.
        RefusedError: another error.
    """
    if code in _NOT_NOW:
        raise NotNowError(f"{what}: {name_of(code)}")
    if code:
        raise RefusedError(f"{what}: {name_of(code)}", code)
