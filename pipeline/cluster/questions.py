"""Questions to leaders about many partitions, one request a broker, and to any broker.

`Asker` asks again while leaders change.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kafka_client.blocking import ClusterError
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster.asker import Answer, Asker
from pipeline.cluster.cluster import name_of

LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4

_LIST_OFFSETS_VERSION = 9
_EPOCHS_VERSION = 4
_CONFIGS_VERSION = 4
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
_TIERED = "remote.storage.enable"


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


def list_offsets(
    asker: Asker,
    times_ms: Mapping[TopicPartition, int],
    *,
    isolation: int = 0,
    epochs: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, FoundOffset]:
    """Ask for offsets by time, or for the special ones.

    Args:
        asker: asks.
        times_ms: ms since 1970, or `LATEST`, `EARLIEST`, `EARLIEST_LOCAL`.
        isolation: as in Fetch; what `LATEST` and times mean.
        epochs: leader epochs that must be the partitions' present ones.

    Raises:
        LeaderChangedError: one is not; only where `epochs` is given.
        UnknownTopicError, ClusterError: no answer.
    """
    request = codec.request(ApiKey.LIST_OFFSETS).cls
    entry = request.Topics.Partitions

    def of_broker(node: int, asked: list[TopicPartition]) -> Iterator[tuple[Any, Answer]]:
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
        answer = asker.ask(node, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, body)
        for one in answer.topics:
            for part in one.partitions:
                found = FoundOffset(part.offset, part.timestamp)
                key = TopicPartition(one.name, part.partition_index)
                yield key, Answer(part.error_code, found)

    return asker.ask_leaders(times_ms, lambda key: key, of_broker, pinned=epochs is not None)


def epoch_ends(
    asker: Asker, asked: Iterable[EpochAsked], epochs: Mapping[TopicPartition, int]
) -> dict[EpochAsked, EpochEnd]:
    """Ask leaders where epochs ended; epochs that are newer than the log are excluded.

    Raises:
        LeaderChangedError: `epochs` are not the leader epochs any more.
        UnknownTopicError, ClusterError: no answer.
    """
    request = codec.request(ApiKey.OFFSET_FOR_LEADER_EPOCH).cls
    entry = request.Topics.Partitions

    def of_broker(node: int, asked: list[EpochAsked]) -> Iterator[tuple[EpochAsked, Answer]]:
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
        answer = asker.ask(node, ApiKey.OFFSET_FOR_LEADER_EPOCH, _EPOCHS_VERSION, body)
        for found in answer.topics:  # a partition stands there once for each epoch, in order
            of_topic = by_topic.get(found.topic, [])
            for one, part in zip(of_topic, found.partitions, strict=False):
                end = EpochEnd(part.leader_epoch, part.end_offset)
                yield one, Answer(part.error_code, end)

    ends = asker.ask_leaders(asked, lambda one: one.partition, of_broker, pinned=True)
    return {one: end for one, end in ends.items() if end.end_offset >= 0}


def broker_settings(asker: Asker) -> dict[str, str]:
    """Settings of some broker that it shows: those that are secret or unset are excluded.

    Raises:
        ClusterError: it does not say.
    """

    def ask() -> Any:
        node = next(iter(asker.cluster.brokers), -1)
        return _configs(asker, node, _BROKER_RESOURCE, [str(node)], None)

    (result,) = asker.again(ask).results
    if result.error_code:
        code = name_of(result.error_code)
        raise ClusterError(f"settings of broker {result.resource_name}: {code}")
    return {
        one.name: one.value
        for one in result.configs
        if one.value is not None and not one.is_sensitive
    }


def tiered_topics(asker: Asker, topics: Iterable[str]) -> set[str]:
    """Those of the topics whose `remote.storage.enable` is true, or whose setting may not be read.

    Raises:
        ClusterError: no broker answers.
    """
    names = sorted(topics)

    def ask() -> Any:
        node = next(iter(asker.cluster.brokers), -1)
        return _configs(asker, node, _TOPIC_RESOURCE, names, [_TIERED])

    return {
        result.resource_name
        for result in asker.again(ask).results
        if result.error_code or any(one.value == "true" for one in result.configs)
    }


def _configs(
    asker: Asker, node: int, kind: int, names: Iterable[str], keys: list[str] | None
) -> Any:
    request = codec.request(ApiKey.DESCRIBE_CONFIGS).cls
    resources = [
        request.Resources(resource_type=kind, resource_name=name, configuration_keys=keys)
        for name in names
    ]
    body = request(resources=resources, include_synonyms=False)
    return asker.ask(node, ApiKey.DESCRIBE_CONFIGS, _CONFIGS_VERSION, body)


def _epoch(epochs: Mapping[TopicPartition, int] | None, partition: TopicPartition) -> int:
    return -1 if epochs is None else epochs[partition]


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found.items()


def epochs_before(
    asker: Asker, offsets: Mapping[TopicPartition, int], leader_epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The epoch of the record before each offset; those that are beyond the log's end are excluded.

    A record is told from all others by its offset and its leader epoch: two logs that have the
    same record at an offset have the same records below it.

    A leader tells only where epochs end, so it is asked for one after the other, the newest first:
    one request a broker for each election since.

    Args:
        asker: asks.
        offsets: above the log starts.
        leader_epochs: must be the partitions' present ones.

    Raises:
        LeaderChangedError: they are not.
        UnknownTopicError, ClusterError: no answer.
    """
    found: dict[TopicPartition, int] = {}
    asked = {partition: leader_epochs[partition] for partition in offsets}
    while asked:
        ends = epoch_ends(
            asker,
            [EpochAsked(partition, epoch) for partition, epoch in asked.items()],
            leader_epochs,
        )
        asked = {}
        for (partition, _), end in ends.items():
            if end.end_offset >= offsets[partition]:
                found[partition] = end.epoch
                if end.epoch > 0:
                    asked[partition] = end.epoch - 1
    return found
