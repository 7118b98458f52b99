"""Asks leaders about many partitions at once, and goes on asking while leaders change.

One request a broker and question, whatever the number of partitions. An answer that only says "not
now" (an election, a broker that restarts) is asked for again within a deadline, after a new look at
the cluster.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster.cluster import Cluster, NotNowError, Topic, look, name_of
from pipeline.cluster.wire_client import ClusterError, UnreachableError, WireClient

LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4

_LIST_OFFSETS_VERSION = 9
_EPOCHS_VERSION = 4
_CONFIGS_VERSION = 4
_BROKER_RESOURCE = 4
_ENTRIES_MAX = 20_000
"""So many entries stand in one request at most."""

_LEADER_CHANGED = {
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
_NOT_NOW = _LEADER_CHANGED | {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # a broker that has not heard of it yet
}

K = TypeVar("K")
V = TypeVar("V")


class FoundOffset(NamedTuple):
    """An answer of ListOffsets; -1 where there is none."""

    offset: int
    timestamp_ms: int


class EpochAsked(NamedTuple):
    """One question for the end of a leader epoch."""

    partition: TopicPartition
    epoch: int


class EpochEnd(NamedTuple):
    """The largest epoch that is not above the asked one, and its end (exclusive)."""

    epoch: int
    end_offset: int


class LeaderChangedError(NotNowError):
    """A partition has another leader than the one that answered before."""


@dataclass(frozen=True, slots=True)
class _Answer:
    code: int
    value: Any


class Asker:
    """Questions to the brokers of one cluster."""

    def __init__(self, client: WireClient, deadline_s: float = 60.0) -> None:
        """Nothing is asked yet.

        Args:
            client: closed by `close`.
            deadline_s: how long one question is asked again.
        """
        self._client = client
        self._deadline_s = deadline_s
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster as last looked at."""
        return self._cluster or self.look()

    def look(self) -> Cluster:
        """Look at the cluster again.

        Raises:
            ClusterError: nobody answers.
        """
        self._cluster = self.again(lambda: look(self._client))
        return self._cluster

    def close(self) -> None:
        """End all connections."""
        self._client.close()

    def again(self, call: Callable[[], V]) -> V:
        """Call until the cluster answers, within the deadline."""
        retrying = Retrying(
            retry=retry_if_exception(_is_passing),
            stop=stop_after_delay(self._deadline_s),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            reraise=True,
        )
        return retrying(call)

    def ask(self, node: int, api_key: ApiKey, version: int, body: object) -> Any:
        """One request to one broker."""
        address = self.cluster.brokers.get(node)
        if address is None:
            raise NotNowError(f"broker {node} is not there")
        return self._client.ask(address, api_key, version, body)

    # ------------------------------------------------------------------ questions to leaders

    def offsets(
        self,
        times_ms: Mapping[TopicPartition, int],
        *,
        isolation: int = 0,
        epochs: Mapping[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, FoundOffset]:
        """Ask for offsets by time, or for the special ones.

        Args:
            times_ms: ms since 1970, or `LATEST`, `EARLIEST`, `EARLIEST_LOCAL`.
            isolation: as in Fetch; what `LATEST` and times mean.
            epochs: leader epochs that must be the partitions' present ones.

        Raises:
            LeaderChangedError: one is not; only where `epochs` is given.
            UnknownTopicError, ClusterError: no answer.
        """
        request = codec.request(ApiKey.LIST_OFFSETS).cls
        entry = request.Topics.Partitions

        def of_broker(node: int, asked: list[TopicPartition]) -> Iterator[tuple[Any, _Answer]]:
            topics = [
                request.Topics(
                    name=topic,
                    partitions=[
                        entry(
                            partition_index=partition,
                            timestamp=times_ms[TopicPartition(topic, partition)],
                            current_leader_epoch=_epoch(epochs, TopicPartition(topic, partition)),
                        )
                        for partition in numbers
                    ],
                )
                for topic, numbers in _by_topic(asked)
            ]
            body = request(replica_id=-1, isolation_level=isolation, topics=topics)
            answer = self.ask(node, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, body)
            for one in answer.topics:
                for part in one.partitions:
                    found = FoundOffset(part.offset, part.timestamp)
                    key = TopicPartition(one.name, part.partition_index)
                    yield key, _Answer(part.error_code, found)

        return self._ask_leaders(times_ms, lambda key: key, of_broker, pinned=epochs is not None)

    def epoch_ends(
        self, asked: Iterable[EpochAsked], epochs: Mapping[TopicPartition, int]
    ) -> dict[EpochAsked, EpochEnd]:
        """Ask leaders where epochs ended; epochs that are newer than the log are left out.

        Raises:
            LeaderChangedError: `epochs` are not the leader epochs any more.
            UnknownTopicError, ClusterError: no answer.
        """
        request = codec.request(ApiKey.OFFSET_FOR_LEADER_EPOCH).cls
        entry = request.Topics.Partitions

        def of_broker(node: int, asked: list[EpochAsked]) -> Iterator[tuple[EpochAsked, _Answer]]:
            by_topic: dict[str, list[EpochAsked]] = {}
            for one in asked:
                by_topic.setdefault(one.partition.topic, []).append(one)
            topics = [
                request.Topics(
                    topic=topic,
                    partitions=[
                        entry(
                            partition=one.partition.partition,
                            current_leader_epoch=epochs[one.partition],
                            leader_epoch=one.epoch,
                        )
                        for one in of_topic
                    ],
                )
                for topic, of_topic in by_topic.items()
            ]
            body = request(topics=topics)
            answer = self.ask(node, ApiKey.OFFSET_FOR_LEADER_EPOCH, _EPOCHS_VERSION, body)
            for found in answer.topics:  # a partition stands there once for each epoch, in order
                of_topic = by_topic.get(found.topic, [])
                for one, part in zip(of_topic, found.partitions, strict=False):
                    yield (
                        one,
                        _Answer(part.error_code, EpochEnd(part.leader_epoch, part.end_offset)),
                    )

        ends = self._ask_leaders(asked, lambda one: one.partition, of_broker, pinned=True)
        return {one: end for one, end in ends.items() if end.end_offset >= 0}

    def broker_settings(self) -> dict[str, str]:
        """Settings of some broker that it shows: those that are secret or unset are left out.

        Raises:
            ClusterError: it does not say.
        """
        request = codec.request(ApiKey.DESCRIBE_CONFIGS).cls

        def ask() -> Any:
            node = next(iter(self.cluster.brokers), -1)
            resource = request.Resources(
                resource_type=_BROKER_RESOURCE, resource_name=str(node), configuration_keys=None
            )
            body = request(resources=[resource], include_synonyms=False)
            return self.ask(node, ApiKey.DESCRIBE_CONFIGS, _CONFIGS_VERSION, body)

        (result,) = self.again(ask).results
        if result.error_code:
            raise ClusterError(
                f"settings of broker {result.resource_name}: {name_of(result.error_code)}"
            )
        return {
            one.name: one.value
            for one in result.configs
            if one.value is not None and not one.is_sensitive
        }

    # ------------------------------------------------------------------ inside

    def _ask_leaders(
        self,
        keys: Iterable[K],
        partition_of: Callable[[K], TopicPartition],
        of_broker: Callable[[int, list[K]], Iterator[tuple[K, _Answer]]],
        *,
        pinned: bool,
    ) -> dict[K, Any]:
        left = list(keys)
        found: dict[K, Any] = {}

        def ask() -> None:
            nonlocal left
            by_leader: dict[int, list[K]] = {}
            for key in left:
                partition = partition_of(key)
                leader = leader_of(self.cluster.topic(partition.topic), partition.partition)
                by_leader.setdefault(leader, []).append(key)
            problems = []
            for node, wanted in by_leader.items():
                asked = iter(wanted)
                while some := list(islice(asked, _ENTRIES_MAX)):
                    for key, answer in of_broker(node, some):
                        if answer.code == 0:
                            found[key] = answer.value
                        else:
                            problems.append((partition_of(key), answer.code))
            left = [key for key in left if key not in found]
            _check(problems, pinned=pinned)
            if left:
                raise ClusterError(f"a broker left out {partition_of(left[0])} in its answer")

        def ask_or_look() -> None:
            try:
                ask()
            except LeaderChangedError:
                raise
            except (NotNowError, UnreachableError):
                self._cluster = look(self._client)
                raise

        self.again(ask_or_look)
        return found


def leader_of(topic: Topic, partition: int) -> int:
    """The node that leads a partition, -1 for none now.

    Raises:
        ClusterError: the topic has no such partition.
    """
    leader = topic.leaders.get(partition)
    if leader is None:
        raise ClusterError(
            f"topic {topic.name} has no partition {partition}: it has {len(topic.leaders)}"
        )
    return leader


def _is_passing(error: BaseException) -> bool:
    """Whether the same question may be answered later; a changed leader begins a new round."""
    if isinstance(error, LeaderChangedError):
        return False
    return isinstance(error, NotNowError | UnreachableError)


def _epoch(epochs: Mapping[TopicPartition, int] | None, partition: TopicPartition) -> int:
    return -1 if epochs is None else epochs[partition]


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found.items()


def _check(problems: Iterable[tuple[TopicPartition, int]], *, pinned: bool) -> None:
    """Raise what the worst answer says: an error before a changed leader before "not now"."""
    not_now = changed = None
    for partition, code in problems:
        text = f"{partition}: {name_of(code)}"
        if code not in _NOT_NOW:
            raise ClusterError(text)
        if pinned and code in _LEADER_CHANGED:
            changed = text
        not_now = text
    if changed is not None:
        raise LeaderChangedError(changed)
    if not_now is not None:
        raise NotNowError(not_now)
