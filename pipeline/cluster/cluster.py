"""Topics and partitions of a running cluster, asked for as any client may.

Offsets: `log_start` and `local_log_start` are inclusive, `log_end` is exclusive (the high
watermark), `highest_tiered` is inclusive.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from kafka_client.blocking import BlockingClient, ClusterError
from kafka_client.security import security_of
from kafka_client.transport import Address
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import EpochEntry
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.values import ClusterAddress

_LATEST, _EARLIEST, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -4, -5
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
_METADATA_VERSION = 12
_LIST_OFFSETS_VERSION = 9
_EPOCHS_VERSION = 4
_CONFIGS_VERSION = 4
_NEAR = 0.7
"""How alike a mistaken name is, at least: `oders` is to `orders`, `tides` is not."""


_NOT_NOW = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""A leader is being elected, or is still learning its log start."""


class NotNowError(ClusterError):
    """No broker can answer for the partition at the moment."""


class UnknownTopicError(ClusterError):
    """There is no topic of that name."""


def connect(address: ClusterAddress) -> BlockingClient:
    """A client for the brokers of a cluster; nothing is opened yet.

    Raises:
        ClusterError: the address is none, or a setting cannot be met.
    """
    return BlockingClient(address.bootstrap, address.client_id, **security_of(address.client))


def no_topic(name: str, known: Iterable[str]) -> UnknownTopicError:
    """The error that names the nearest of the known topics, where one is near."""
    near = get_close_matches(name, list(known), 1, _NEAR)
    hint = f"; did you mean {near[0]}?" if near else ""
    return UnknownTopicError(f"there is no topic {name[:249]!r}{hint}")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the cluster.

    Attributes:
        topic_id: 16 raw bytes.
        leaders: node by partition, -1 where there is none now.
        leader_epochs: by partition.
    """

    name: str
    topic_id: bytes
    leaders: Mapping[int, int]
    leader_epochs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cluster:
    """One look at a cluster.

    Attributes:
        brokers: address by node.
        topics: by name.
    """

    cluster_id: str
    brokers: Mapping[int, Address]
    topics: Mapping[str, Topic]

    def topic(self, name: str) -> Topic:
        """The topic of that name.

        Raises:
            UnknownTopicError: there is none; names the nearest.
        """
        found = self.topics.get(name)
        if found is None:
            raise no_topic(name, self.topics)
        return found


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Where the tiers of a partition begin and end, as its leader says.

    Attributes:
        highest_tiered: -1 where nothing is in the remote tier; None where the leader does not
            know it, because its tier has not found the partition sound.
    """

    log_start: int
    local_log_start: int
    highest_tiered: int | None
    log_end: int


def look(
    client: BlockingClient, names: Iterable[str] | None = None, address: Address | None = None
) -> Cluster:
    """Ask for brokers and topics: all, or those of these names that there are.

    Args:
        client: asks.
        names: None: all topics.
        address: the broker to ask; None: any.

    Raises:
        ClusterError: no broker answers.
    """
    request = codec.request(ApiKey.METADATA).cls
    wanted = None if names is None else [request.Topics(name=name) for name in sorted(set(names))]
    body = request(topics=wanted, allow_auto_topic_creation=False)
    if address is None:
        answer = client.ask_any(ApiKey.METADATA, _METADATA_VERSION, body)
    else:
        answer = client.ask(address, ApiKey.METADATA, _METADATA_VERSION, body)
    return Cluster(
        answer.cluster_id or "",
        {one.node_id: (one.host, one.port) for one in answer.brokers},
        {
            one.name: Topic(
                one.name,
                bytes(one.topic_id),
                {part.partition_index: part.leader_id for part in one.partitions},
                {part.partition_index: part.leader_epoch for part in one.partitions},
            )
            for one in answer.topics
            if not one.error_code
        },
    )


def is_tiered(client: BlockingClient, topic: str) -> bool:
    """Whether the topic's `remote.storage.enable` is true.

    Raises:
        ClusterError: the cluster does not say.
    """
    request = codec.request(ApiKey.DESCRIBE_CONFIGS).cls
    resource = request.Resources(
        resource_type=_TOPIC_RESOURCE,
        resource_name=topic,
        configuration_keys=["remote.storage.enable"],
    )
    body = request(resources=[resource], include_synonyms=False)
    (result,) = client.ask_any(ApiKey.DESCRIBE_CONFIGS, _CONFIGS_VERSION, body).results
    if result.error_code:
        raise ClusterError(f"settings of topic {topic}: {name_of(result.error_code)}")
    return any(one.value == "true" for one in result.configs)


def broker_setting(client: BlockingClient, address: Address, node_id: int, name: str) -> str | None:
    """The value of a broker's setting, set or by default; None: it does not report it.

    Raises:
        ClusterError: the broker does not answer.
    """
    request = codec.request(ApiKey.DESCRIBE_CONFIGS).cls
    resource = request.Resources(
        resource_type=_BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=[name]
    )
    body = request(resources=[resource], include_synonyms=False)
    (result,) = client.ask(address, ApiKey.DESCRIBE_CONFIGS, _CONFIGS_VERSION, body).results
    if result.error_code:
        raise ClusterError(f"settings of broker {node_id}: {name_of(result.error_code)}")
    return next((one.value for one in result.configs if one.name == name), None)


def offsets(
    client: BlockingClient, cluster: Cluster, topic: Topic, partition: int
) -> PartitionOffsets | None:
    """Ask the leader where the tiers of a partition begin and end.

    None where it has no leader, or one that cannot say yet.

    Raises:
        ClusterError: the leader does not answer.
    """
    address = cluster.brokers.get(topic.leaders[partition])
    if address is None:
        return None

    def ask(timestamp: int) -> int:
        return _offset(client, address, topic.name, partition, timestamp)

    def ask_tiered() -> int | None:
        try:
            return ask(_LATEST_TIERED)
        except NotNowError:
            return None

    try:  # in this order: none of them moves above one that is asked later
        return PartitionOffsets(ask(_EARLIEST), ask(_EARLIEST_LOCAL), ask_tiered(), ask(_LATEST))
    except NotNowError:
        return None


def epoch_chain(
    client: BlockingClient, cluster: Cluster, topic: Topic, partition: int, epochs: Iterable[int]
) -> list[EpochEntry] | None:
    """The leader's epoch chain, as far as segments of these epochs need it.

    A leader tells the end of an epoch, or of the largest one below. Asking for each epoch and the
    one below it gives begin and end of each. None where the partition has no leader now, or one
    that cannot say yet.

    Raises:
        ClusterError: the leader does not say.
    """
    address = cluster.brokers.get(topic.leaders[partition])
    if address is None:
        return None
    leader_epoch = topic.leader_epochs.get(partition, -1)
    asked = near_epochs({*epochs, leader_epoch})
    request = codec.request(ApiKey.OFFSET_FOR_LEADER_EPOCH).cls
    ends = {}
    for epoch in asked:
        wanted = request.Topics.Partitions(partition=partition, leader_epoch=epoch)
        body = request(topics=[request.Topics(topic=topic.name, partitions=[wanted])])
        answer = client.ask(address, ApiKey.OFFSET_FOR_LEADER_EPOCH, _EPOCHS_VERSION, body)
        found = answer.topics[0].partitions[0]
        if found.error_code in _NOT_NOW:
            return None
        if found.error_code:
            raise ClusterError(f"epochs of {topic.name}-{partition}: {name_of(found.error_code)}")
        if found.end_offset >= 0:
            ends[found.leader_epoch] = found.end_offset
    return chain_from_ends(ends, leader_epoch)


def near_epochs(epochs: Iterable[int]) -> list[int]:
    """These epochs and those right below: what a leader must be asked for begin and end of each."""
    return sorted({near for epoch in epochs for near in (epoch - 1, epoch) if near >= 0})


def chain_from_ends(ends: Mapping[int, int], leader_epoch: int) -> list[EpochEntry]:
    """A chain out of the ends (exclusive) of some epochs: each begins where the one before ends.

    True for epochs whose neighbour below is among them, or that are the first of the chain. What
    the leader has not written, or writes later, is of its own epoch, also where it has written
    nothing under it yet: so no earlier epoch reaches beyond its end.
    """
    chain, start = [], 0
    for epoch, end in sorted(ends.items()):
        chain.append(EpochEntry(epoch, start))
        start = end
    if chain and chain[-1].epoch < leader_epoch:
        chain.append(EpochEntry(leader_epoch, start))
    return chain


def _offset(
    client: BlockingClient, address: Address, topic: str, partition: int, timestamp: int
) -> int:
    request = codec.request(ApiKey.LIST_OFFSETS).cls
    wanted = request.Topics.Partitions(partition_index=partition, timestamp=timestamp)
    body = request(
        replica_id=-1,
        isolation_level=0,
        topics=[request.Topics(name=topic, partitions=[wanted])],
    )
    answer: Any = client.ask(address, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, body)
    found = answer.topics[0].partitions[0]
    if found.error_code in _NOT_NOW:
        raise NotNowError(f"{topic}-{partition}: {name_of(found.error_code)}")
    if found.error_code:
        raise ClusterError(f"offsets of {topic}-{partition}: {name_of(found.error_code)}")
    return int(found.offset)


def name_of(code: int) -> str:
    """The name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
