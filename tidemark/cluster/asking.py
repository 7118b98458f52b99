"""Questions of commands to a cluster, over Kafka's APIs: any broker answers, or hands it on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kafka_client.blocking import BlockingClient, ClusterError
from kafka_client.transport import Address
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.controller.configs import Operation
from metadata_topic.image.image import ResourceType

MIN_ISR: Final = "min.insync.replicas"
_AT_ONCE: Final = 1_000
"""Partitions, or topics, in one request."""
_TIMEOUT_MS: Final = 20_000
"""How long the controller may take to delete or grow topics: less than the client waits."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A registered broker."""

    id: int
    address: Address
    rack: str
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as a broker sees it; the first replica is the preferred leader."""

    topic: str
    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as a broker sees it.

    Attributes:
        topic_id: 16 raw bytes.
        is_internal: it belongs to the brokers: `__consumer_offsets`, and the tier's own topic,
            which Kafka does not mark.
        partitions: ascending.
    """

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionState]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a topic or a broker.

    Attributes:
        value: None where it is secret, or has none.
        source: where the value comes from, a number of DescribeConfigs.
    """

    name: str
    value: str | None
    source: int
    is_read_only: bool = False


class NewTopic(NamedTuple):
    """A topic that is to be made; -1: as the cluster's settings say."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    settings: Mapping[str, str] = MappingProxyType({})


class Change(NamedTuple):
    """A change of one setting; DELETE goes without a value."""

    key: str
    operation: Operation
    value: str | None = None


@dataclass(frozen=True, slots=True)
class TargetReplicas:
    """Replicas that a partition shall have, the preferred leader first."""

    topic: str
    index: int
    replicas: tuple[int, ...]


class Reassigning(NamedTuple):
    """The replicas of a partition that are being added, and those that leave when that is done."""

    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a partition does not get them."""

    topic: str
    index: int
    code: int
    text: str


class RefusedError(ClusterError):
    """A broker, or the controller, refuses.

    Attributes:
        code: an `ErrorCode`, unless that is newer than this version.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A log directory of a broker.

    Attributes:
        error: code; 0: it works.
        usable_bytes: of its disk; -1: unknown.
        replicas: bytes of each replica there, by topic and partition.
        arriving: bytes that are copied of replicas that move there.
    """

    path: str
    error: int
    usable_bytes: int
    replicas: Mapping[tuple[str, int], int]
    arriving: Mapping[tuple[str, int], int]


class Cluster:
    """Asks the brokers that a client knows; each method raises ClusterError where none answers."""

    def __init__(self, client: BlockingClient) -> None:
        """Nothing is asked yet."""
        self._client = client

    def brokers(self) -> dict[int, BrokerState]:
        """All registered brokers by id, fenced ones too; from now on any of them may be asked."""
        answer = self._ask(ApiKey.DESCRIBE_CLUSTER, 2, include_fenced_brokers=True)
        _check(answer, "DescribeCluster")
        found = {
            one.broker_id: BrokerState(
                one.broker_id, (one.host, one.port), one.rack or "", one.is_fenced
            )
            for one in sorted(answer.brokers, key=lambda one: one.broker_id)
        }
        self._client.others = [one.address for one in found.values() if not one.is_fenced]
        return found

    def partitions(self, topics: Sequence[str] = ()) -> Iterator[PartitionState]:
        """Those of some topics, or of all.

        Raises:
            ClusterError: a topic that is named does not exist.
        """
        for part in self._parts_of_topics(topics):
            yield from part.partitions

    def topics(self, names: Sequence[str] = ()) -> dict[str, TopicState]:
        """Those of these names, or all; by name.

        Raises:
            ClusterError: a topic that is named does not exist.
        """
        found: dict[str, TopicState] = {}
        for part in self._parts_of_topics(names):
            found.setdefault(part.name, part)
            if found[part.name] is not part:
                found[part.name].partitions.extend(part.partitions)
        return found

    def _parts_of_topics(self, names: Sequence[str]) -> Iterator[TopicState]:
        """Topics page by page; one that lies on several pages comes in several parts."""
        cls = codec.request(ApiKey.DESCRIBE_TOPIC_PARTITIONS).cls
        named, cursor = [cls.Topics(name=one) for one in sorted(set(names))], None
        while True:
            page = self._ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=named, cursor=cursor)
            for topic in page.topics:
                _check(topic, f"topic {topic.name}")
                partitions = [
                    PartitionState(
                        topic.name,
                        one.partition_index,
                        one.leader_id,
                        tuple(one.replica_nodes),
                        tuple(one.isr_nodes),
                        tuple(one.eligible_leader_replicas or ()),
                        tuple(one.last_known_elr or ()),
                    )
                    for one in topic.partitions
                ]
                is_internal = topic.is_internal or topic.name == REMOTE_LOG_METADATA_TOPIC
                yield TopicState(topic.name, bytes(topic.topic_id), is_internal, partitions)
            if page.next_cursor is None:
                return
            cursor = cls.Cursor(
                topic_name=page.next_cursor.topic_name,
                partition_index=page.next_cursor.partition_index,
            )

    def replica_sizes(
        self, broker: BrokerState, only: PartitionState | None = None
    ) -> dict[tuple[str, int], int]:
        """Bytes of the replicas that a broker serves, by topic and partition.

        Args:
            broker: serves.
            only: the one to ask for; None: all.
        """
        cls = codec.request(ApiKey.DESCRIBE_LOG_DIRS).cls
        asked = None if only is None else [cls.Topics(topic=only.topic, partitions=[only.index])]
        body = cls(topics=asked)
        answer = self._client.ask(broker.address, ApiKey.DESCRIBE_LOG_DIRS, 4, body)
        _check(answer, f"the log directories of broker {broker.id}")
        return {
            (topic.name, one.partition_index): one.partition_size
            for result in answer.results
            for topic in result.topics
            for one in topic.partitions
            if not one.is_future_key
        }

    def log_directories(self, broker: BrokerState) -> list[LogDirectory]:
        """Those of a broker that serves, with what lies in each."""
        cls = codec.request(ApiKey.DESCRIBE_LOG_DIRS).cls
        answer = self._client.ask(broker.address, ApiKey.DESCRIBE_LOG_DIRS, 4, cls(topics=None))
        _check(answer, f"the log directories of broker {broker.id}")
        return [
            LogDirectory(
                result.log_dir,
                result.error_code,
                result.usable_bytes,
                *(
                    {
                        (topic.name, one.partition_index): one.partition_size
                        for topic in result.topics
                        for one in topic.partitions
                        if one.is_future_key is is_future
                    }
                    for is_future in (False, True)
                ),
            )
            for result in answer.results
        ]

    def move_to_directories(
        self, broker: BrokerState, wanted: Mapping[tuple[str, int], str]
    ) -> dict[tuple[str, int], int]:
        """Have replicas of a broker move to other log directories of it.

        Args:
            broker: serves.
            wanted: the path for each, by topic and partition.

        Returns:
            Error codes of those that do not move.
        """
        cls = codec.request(ApiKey.ALTER_REPLICA_LOG_DIRS).cls
        asked: dict[str, dict[str, list[int]]] = {}
        for (topic, index), path in wanted.items():
            asked.setdefault(path, {}).setdefault(topic, []).append(index)
        body = cls(
            dirs=[
                cls.Dirs(
                    path=path,
                    topics=[
                        cls.Dirs.Topics(name=topic, partitions=indexes)
                        for topic, indexes in topics.items()
                    ],
                )
                for path, topics in asked.items()
            ]
        )
        answer = self._client.ask(broker.address, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, body)
        return {
            (topic.topic_name, one.partition_index): one.error_code
            for topic in answer.results
            for one in topic.partitions
            if one.error_code
        }

    def min_isr(self, topics: Sequence[str]) -> dict[str, int]:
        """`min.insync.replicas` of topics that exist."""
        return {topic: int(value) for topic, value in self.settings(MIN_ISR, topics).items()}

    def settings(self, key: str, topics: Sequence[str]) -> dict[str, str]:
        """A setting of topics that exist, or its default there."""
        found = self.all_settings(ResourceType.TOPIC, topics, [key])
        return {topic: settings[0].value or "" for topic, settings in found.items()}

    def all_settings(
        self,
        kind: ResourceType,
        names: Sequence[str],
        keys: Sequence[str] | None = None,
        at: Address | None = None,
    ) -> dict[str, list[Setting]]:
        """Settings of topics that exist, or of a broker, by name of these.

        Args:
            kind: of resource.
            names: topics, or the id of a broker; "": what all brokers share.
            keys: the settings that are asked for; None: all.
            at: the broker whose settings they are: no other can say; None: any may.
        """
        cls = codec.request(ApiKey.DESCRIBE_CONFIGS).cls
        asked = None if keys is None else list(keys)
        found: dict[str, list[Setting]] = {}
        for some in _sliced(names):
            resources = [
                cls.Resources(resource_type=int(kind), resource_name=one, configuration_keys=asked)
                for one in some
            ]
            body, key = cls(resources=resources), ApiKey.DESCRIBE_CONFIGS
            if at is None:
                answer = self._client.ask_any(key, 4, body)
            else:
                answer = self._client.ask(at, key, 4, body)
            for result in answer.results:
                if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue  # deleted meanwhile
                _check(result, f"the settings of {result.resource_name}")
                found[result.resource_name] = [
                    Setting(one.name, one.value, one.config_source, one.read_only)
                    for one in result.configs
                ]
        return found

    def set_min_isr(self, topic: str, count: int) -> None:
        """Set `min.insync.replicas` of a topic.

        Raises:
            ClusterError: the controller refuses.
        """
        self.alter_config(ResourceType.TOPIC, topic, MIN_ISR, Operation.SET, str(count))

    def alter_config(
        self,
        kind: ResourceType,
        name: str,
        key: str,
        operation: Operation,
        value: str | None = None,
    ) -> None:
        """Change one setting of a topic, or of a broker.

        Args:
            kind: of resource.
            name: the topic, or the broker's id.
            key: the setting.
            operation: what to do with it.
            value: None with DELETE.

        Raises:
            RefusedError: the controller refuses.
        """
        self.alter_configs(kind, name, [Change(key, operation, value)])

    def alter_configs(self, kind: ResourceType, name: str, changes: Sequence[Change]) -> None:
        """Change settings of a topic, or of a broker: all of them, or none.

        Args:
            kind: of resource.
            name: the topic, or the broker's id; "": what all brokers share.
            changes: each of another setting.

        Raises:
            RefusedError: the controller refuses.
        """
        cls = codec.request(ApiKey.INCREMENTAL_ALTER_CONFIGS).cls
        configs = [
            cls.Resources.Configs(name=key, config_operation=int(operation), value=value)
            for key, operation, value in changes
        ]
        resource = cls.Resources(resource_type=int(kind), resource_name=name, configs=configs)
        answer = self._ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
        keys = ", ".join(one.key for one in changes)
        _check(answer.responses[0], f"{keys} of {name or 'all brokers'}")

    # -- topics -----------------------------------------------------------------------------------

    def create_topic(self, new: NewTopic) -> tuple[int, int]:
        """Make a topic; returns its partitions and its replication factor.

        Raises:
            RefusedError: the controller refuses.
        """
        cls = codec.request(ApiKey.CREATE_TOPICS).cls
        topic = cls.Topics(
            name=new.name,
            num_partitions=new.partitions,
            replication_factor=new.replication_factor,
            configs=[cls.Topics.Configs(name=k, value=v) for k, v in new.settings.items()],
        )
        (made,) = self._ask(ApiKey.CREATE_TOPICS, 7, topics=[topic]).topics
        _check(made, f"topic {new.name}")
        return made.num_partitions, made.replication_factor

    def create_partitions(self, topic: str, count: int) -> None:
        """Have a topic get more partitions.

        Args:
            topic: its name.
            count: of all partitions afterwards.

        Raises:
            RefusedError: the controller refuses: there is no such topic, or it has as many.
        """
        cls = codec.request(ApiKey.CREATE_PARTITIONS).cls
        wanted = cls.Topics(name=topic, count=count, assignments=None)
        answer = self._ask(ApiKey.CREATE_PARTITIONS, 3, topics=[wanted], timeout_ms=_TIMEOUT_MS)
        _check(answer.results[0], f"topic {topic}")

    def delete_topics(self, names: Mapping[bytes, str]) -> dict[str, RefusedError]:
        """Delete topics with their records; returns why some stay, by name.

        By their ids: a topic that is made again under such a name meanwhile stays.

        Args:
            names: by topic id.
        """
        cls = codec.request(ApiKey.DELETE_TOPICS).cls
        topics = [cls.Topics(name=None, topic_id=one) for one in names]
        answer = self._ask(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout_ms=_TIMEOUT_MS)
        refused: dict[str, RefusedError] = {}
        for one in answer.responses:
            name = names[one.topic_id]
            try:
                _check(one, f"topic {name}")
            except RefusedError as error:
                refused[name] = error
        return refused

    # -- replicas ---------------------------------------------------------------------------------

    def reassign(self, wanted: Sequence[TargetReplicas]) -> list[Refusal]:
        """Have partitions get other replicas; returns when it is decided, not when it is done."""
        cls = codec.request(ApiKey.ALTER_PARTITION_REASSIGNMENTS).cls
        refused: list[Refusal] = []
        for some in _sliced(wanted):
            topics: dict[str, Any] = {}
            for one in some:
                topic = topics.setdefault(one.topic, cls.Topics(name=one.topic))
                topic.partitions.append(
                    cls.Topics.Partitions(partition_index=one.index, replicas=list(one.replicas))
                )
            answer = self._ask(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=list(topics.values())
            )
            _check(answer, "AlterPartitionReassignments")
            refused += [
                Refusal(topic.name, one.partition_index, one.error_code, one.error_message or "")
                for topic in answer.responses
                for one in topic.partitions
                if one.error_code
            ]
        return refused

    def reassigning(self) -> dict[tuple[str, int], Reassigning]:
        """The reassignments in progress, by topic and partition."""
        answer = self._ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None)
        _check(answer, "ListPartitionReassignments")
        return {
            (topic.name, one.partition_index): Reassigning(
                tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    # -- features ---------------------------------------------------------------------------------

    def features(self) -> Any:
        """The answer of a broker to ApiVersions 4, which says what is supported and finalised."""
        answer = self._ask(
            ApiKey.API_VERSIONS, 4, client_software_name="tidemark", client_software_version="0"
        )
        _check(answer, "ApiVersions")
        return answer

    def upgrade_features(self, levels: Mapping[str, int]) -> None:
        """Finalise higher levels, all or none.

        Raises:
            ClusterError: the controller refuses.
        """
        cls = codec.request(ApiKey.UPDATE_FEATURES).cls
        updates = [
            cls.FeatureUpdates(feature=name, max_version_level=level, upgrade_type=1)
            for name, level in levels.items()
        ]
        answer = self._ask(ApiKey.UPDATE_FEATURES, 1, feature_updates=updates)
        _check(answer, "the controller refuses")

    def _ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        return self._client.ask_any(api_key, version, codec.request(api_key).cls(**fields))


def _sliced(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(items), _AT_ONCE):
        yield items[first : first + _AT_ONCE]


def _check(answer: Any, what: str) -> None:
    if answer.error_code:
        known = {int(code): code.name for code in ErrorCode}
        code = known.get(answer.error_code, f"error {answer.error_code}")
        text = getattr(answer, "error_message", None) or ""
        raise RefusedError(f"{what}: {code}: {text}".rstrip(": "), answer.error_code)
