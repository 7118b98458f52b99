"""Asks the leader of one partition, found by the topic's id: Fetch, and where its log begins.

A topic that was deleted and made again has another id, so its records are never taken for those of
the old one. What may pass (an election, a broker that restarts) is a NotNowError; the caller tries
again, and every try looks for the leader again. Where a plan names the leader, that broker is asked
first, and the cluster only if it fails: a task of a few records needs one connection. What such a
broker says of a log's bounds counts only after a look, for it may be deposed.
"""

from dataclasses import dataclass
from typing import Any

from kafka_client.blocking import BlockingClient, ClusterError
from kafka_client.transport import Address
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicIdPartition
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.primitives import uuid_to_text
from pipeline.cluster.cluster import NotNowError
from pipeline.values import Isolation

_METADATA_VERSION = 12
_FETCH_VERSION = 16
_LIST_OFFSETS_VERSION = 9
_EARLIEST = -2
_MAX_WAIT_MS = 500

_NOT_NOW = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # not yet known there, or not led there
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,  # a broker whose tier fails for now
    }
)


class TopicDeletedError(NotNowError):
    """No broker knows the topic's id: it was deleted, or they have not heard of it yet."""


class OutOfRangeError(ClusterError):
    """The leader has no such offset."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """One answer.

    Attributes:
        records: batches, the last one perhaps cut; a view into the answer.
        aborted: producer id and first offset of each aborted transaction in it.
        end: where the log ends for this reader (exclusive): the high watermark, or the last stable
            offset.
        broker: `host:port` of the leader.
    """

    records: memoryview
    aborted: tuple[tuple[int, int], ...]
    end: int
    broker: str


class Leader:
    """The leader of a partition, whoever it is now."""

    def __init__(
        self,
        client: BlockingClient,
        partition: TopicIdPartition,
        isolation: Isolation,
        hint: Address | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            client: asks.
            partition: by its topic's id.
            isolation: as in Fetch.
            hint: who led when the plan was made.
        """
        self._client, self._partition, self._isolation = client, partition, isolation
        self._address, self._is_hint = hint, hint is not None

    def fetch(self, offset: int, max_bytes: int) -> Fetched:
        """Batches from the one that holds `offset`, or the first behind it.

        Args:
            offset: inclusive.
            max_bytes: most that is wanted; a first batch that is larger comes whole.

        Raises:
            OutOfRangeError: the log begins behind `offset`, or ends before it.
            NotNowError: it may be answered later.
            ClusterError: the cluster refuses.
        """
        request = codec.request(ApiKey.FETCH).cls
        wanted = request.Topics.Partitions(
            partition=self._partition.partition,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
        )
        body = request(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=self._isolation,
            topics=[request.Topics(topic_id=self._partition.topic_id, partitions=[wanted])],
            rack_id="",
        )
        address = self._find()
        answer = self._ask(address, ApiKey.FETCH, _FETCH_VERSION, body)
        self._check(answer.error_code)
        part = _only(answer.responses)
        self._check(part.error_code)
        is_committed = self._isolation is Isolation.READ_COMMITTED
        return Fetched(
            memoryview(part.records or b""),
            tuple((one.producer_id, one.first_offset) for one in part.aborted_transactions or ()),
            part.last_stable_offset if is_committed else part.high_watermark,
            f"{address[0]}:{address[1]}",
        )

    def log_start(self) -> int:
        """The first offset of the log.

        Raises:
            NotNowError: it may be answered later.
            ClusterError: the cluster refuses.
        """
        request = codec.request(ApiKey.LIST_OFFSETS).cls
        wanted = request.Topics.Partitions(
            partition_index=self._partition.partition, timestamp=_EARLIEST
        )
        topics = [request.Topics(name=self._partition.topic, partitions=[wanted])]
        body = request(replica_id=-1, isolation_level=0, topics=topics)
        answer = self._ask(self._find(), ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, body)
        part = _only(answer.topics)
        self._check(part.error_code)
        return int(part.offset)

    def forget(self) -> None:
        """The next question looks at the cluster first."""
        self._address, self._is_hint = None, False

    # ------------------------------------------------------------------ inside

    def _find(self) -> Address:
        """The present leader; remembered until an answer shows that it is another."""
        if self._address is None:
            self._address = self._look()
        return self._address

    def _look(self) -> Address:
        request = codec.request(ApiKey.METADATA).cls
        topic = request.Topics(topic_id=self._partition.topic_id, name=None)
        body = request(topics=[topic], allow_auto_topic_creation=False)
        try:
            answer = self._client.ask_any(ApiKey.METADATA, _METADATA_VERSION, body)
        except ClusterError as error:
            raise NotNowError(str(error)) from error
        (found,) = answer.topics
        self._check(found.error_code)
        for part in found.partitions:
            if part.partition_index == self._partition.partition:
                for broker in answer.brokers:
                    if broker.node_id == part.leader_id:
                        return broker.host, broker.port
                raise NotNowError(f"{self._partition.topic_partition} has no leader now")
        raise ClusterError(
            f"topic {self._partition.topic} has no partition {self._partition.partition}"
        )

    def _ask(self, address: Address, api_key: ApiKey, version: int, body: object) -> Any:
        try:
            return self._client.ask(address, api_key, version, body)
        except ClusterError as error:
            self.forget()
            raise NotNowError(str(error)) from error

    def _check(self, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        name = next((one.name for one in ErrorCode if one == code), f"error {code}")
        text = f"{self._partition.topic_partition}: {name}"
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._is_hint:
                self.forget()
                raise NotNowError(text)
            raise OutOfRangeError(text)
        if code == ErrorCode.UNKNOWN_TOPIC_ID:
            self.forget()
            topic_id = uuid_to_text(self._partition.topic_id)
            raise TopicDeletedError(
                f"{text}: there is no topic {self._partition.topic} of id {topic_id} any more; it"
                " was deleted, or deleted and made again"
            )
        if code in _NOT_NOW:
            self.forget()
            raise NotNowError(text)
        raise ClusterError(text)


def _only(topics: Any) -> Any:
    """The one partition that was asked for."""
    parts = [part for topic in topics for part in topic.partitions]
    if len(parts) != 1:
        raise NotNowError(f"an answer of {len(parts)} partitions where one was asked for")
    return parts[0]
