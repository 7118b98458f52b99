"""The port to the real topic: one idempotent producer and one consumer of confluent-kafka.

No consumer group: partitions are assigned by hand. Positions are kept in our own store, written
together with the state that follows from them.

The log itself confirms a position: reading begins one record before it, and that record must be
there with the leader epoch of the position. Equal epochs at an offset mean equal logs up to it. The
check is repeated at each record of a new leader epoch. (librdkafka checks epochs only while it
runs, and not those of an assignment.)

librdkafka's queues are bounded: this process always runs beside the broker, and is mostly idle.
"""

import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # no stub

from kafka_protocol.types import NO_GROUP, REMOTE_LOG_METADATA_TOPIC
from rlmm.store import START, Position
from rlmm.topic_based.settings import ManagerSettings
from rlmm.topic_based.topic_port import (
    Appended,
    AppendFailed,
    AppendResult,
    Diverged,
    ReachedEnd,
    TopicEvent,
    TopicPort,
    TopicRecord,
    TopicUnavailableError,
    Unreadable,
    damaged,
)
from runtime.clock import Clock, SystemClock
from runtime.health_reasons import HEALTHY, HealthReason, HealthText
from runtime.incidents import Incident
from runtime.log_context import Outage, limited
from runtime.override import override

log = logging.getLogger(__name__)

CLIENT_ID = "tidemark-tier"
"""A name for logs. It carries no permission, since librdkafka writes it into each of its lines."""
_LOOKUP_SECONDS = 5.0
_ENDS_METADATA_AGE_MS = 1_000
_FLUSH_SECONDS = 2.0
_BATCH_MAX = 500
_REFUSED_FOR_MS = 90_000
"""How long a refusal counts; librdkafka reports a repeated one every 30 s."""
_REFUSALS_SHOWN = 10
_BROKEN_OFF = "failed: Local: "
"""In the text of a handshake that ended with its connection; librdkafka has one code for both."""
_REFUSED = "SASL authentication error"
_TIMES = " (after "
"""The text after it differs from report to report."""
_UNKNOWN_KEY = re.compile(r'No such configuration property: "([^"]+)"')
_DIVERGED = {
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._LOG_TRUNCATION,
    KafkaError.OFFSET_OUT_OF_RANGE,
}
_COMPACTED = (
    f"{REMOTE_LOG_METADATA_TOPIC} takes no records without keys, as a topic with "
    "cleanup.policy=compact: set it back by `kafka-configs.sh --alter --entity-type topics "
    f"--entity-name {REMOTE_LOG_METADATA_TOPIC}"
    " --add-config cleanup.policy=delete`"
)
_DAMAGED = {KafkaError.INVALID_MSG, KafkaError._BAD_MSG}
_NOT_WRITTEN = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_RECORD,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}

Client = TypeVar("Client", Producer, Consumer, AdminClient)


class ClientLog:
    """Receives librdkafka's log lines, and logs them as WARNING or lower: the client tries again.

    A refusal is logged as ERROR: only a person ends it.
    """

    def log(self, level: int, message: str, facility: str, client: str, text: str) -> None:
        """The one method that the client calls, as of `logging.Logger`."""
        if _REFUSED in text and level >= logging.ERROR:
            limited.error(log, Incident.CLIENT_REFUSED.line(client=client, text=text), client)
        else:
            log.log(min(level, logging.WARNING), message, facility, client, text)


class Refusals:
    """Refusals by brokers that do not authenticate these clients. The clients hold this object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noted: dict[str, tuple[int, str]] = {}  # by address: (time, reason); replaced whole

    def note(self, error: KafkaError) -> None:
        """Note an error of a connection; librdkafka logs it, too, and keeps trying."""
        text = error.str()
        if error.code() == KafkaError._AUTHENTICATION and _BROKEN_OFF not in text:
            why = text.partition(_TIMES)[0]
            # PROTOCOL://HOST:PORT/ID: a broker is listed by its address before its id is known.
            address = why.partition(": ")[0].rpartition("/")[0]
            self._noted = {**self._recent(), address: (self._clock.monotonic_ms(), why)}

    def _recent(self) -> dict[str, tuple[int, str]]:
        oldest_ms = self._clock.monotonic_ms() - _REFUSED_FOR_MS
        return {address: one for address, one in self._noted.items() if one[0] >= oldest_ms}

    def recent(self) -> HealthText:
        """Recent refusals as a health reason; HEALTHY if there are none."""
        reasons = sorted(why for _, why in self._recent().values())
        if not reasons:
            return HEALTHY
        shown = "; ".join(reasons[:_REFUSALS_SHOWN])
        if len(reasons) > _REFUSALS_SHOWN:
            shown += f"; and {len(reasons) - _REFUSALS_SHOWN} more"
        return HealthReason.TIER_REFUSED.text(error=shown, topic=REMOTE_LOG_METADATA_TOPIC)


class ConfluentPort(TopicPort):
    """The TopicPort of the real topic.

    Attributes:
        failure: Reason why the producer can never write again, None while it can. A fatal error of
            librdkafka, such as a sequence number that the log lost, never ends.
    """

    def __init__(self, settings: ManagerSettings, clock: Clock | None = None) -> None:
        self._refusals = Refusals(clock or SystemClock())
        common: dict[str, Any] = {
            "bootstrap.servers": settings.bootstrap_servers,
            **settings.security,
            "client.id": f"{CLIENT_ID}-{settings.node_id}",
            "logger": ClientLog(),
            "statistics.interval.ms": 0,
            "log.connection.close": False,
            "socket.keepalive.enable": True,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "enable.metrics.push": False,
        }
        delivery_ms = max(1_000, settings.consume_wait_ms)
        polled = {**common, "error_cb": self._refusals.note}
        self._producer = make_client(
            Producer,
            settings.producer,
            {
                **polled,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "delivery.timeout.ms": delivery_ms,
                "request.timeout.ms": min(30_000, delivery_ms),
                "queue.buffering.max.messages": 10_000,
                "queue.buffering.max.kbytes": 4_096,
                "partitioner": "murmur2_random",
            },
        )
        self._consumer = make_client(
            Consumer,
            settings.consumer,
            {
                **polled,
                "group.id": NO_GROUP,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "check.crcs": True,
                "fetch.wait.max.ms": 250,
                "fetch.error.backoff.ms": 100,
                "fetch.queue.backoff.ms": 10,  # else a full queue costs a second, read or not
                "queued.min.messages": 1_000,
                "queued.max.messages.kbytes": 2_048,
                "fetch.message.max.bytes": 262_144,
                "fetch.max.bytes": 2_097_152,
            },
        )
        self.failure: str | None = None
        self._common, self._passed = common, settings.producer
        self._admin: AdminClient | None = None
        self._ends: list[tuple[int, Callable[[int | None], None]]] = []
        self._end_answers: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._positions: dict[int, Position] = {}
        self._unconfirmed: set[int] = set()  # partitions whose position is not confirmed yet
        self._confirmed_again: dict[int, int] = {}  # by partition: offset of the last check
        self._outage = Outage(log, "reading the metadata topic")

    @override
    def refused(self) -> HealthText:
        return self._refusals.recent()

    @override
    def connect(self) -> int:
        try:
            found = self._producer.list_topics(REMOTE_LOG_METADATA_TOPIC, timeout=_LOOKUP_SECONDS)
        except KafkaException as e:
            raise TopicUnavailableError(str(e)) from e
        topic = found.topics.get(REMOTE_LOG_METADATA_TOPIC)
        if topic is None or topic.error is not None or not topic.partitions:
            error = "not created yet" if topic is None else topic.error
            raise TopicUnavailableError(f"{REMOTE_LOG_METADATA_TOPIC}: {error}")
        return len(topic.partitions)

    @override
    def assign(self, positions: Mapping[int, Position]) -> None:
        self._positions = dict(positions)
        self._unconfirmed = {n for n, position in positions.items() if position.offset > 0}
        self._confirmed_again = {}
        self._consumer.assign(
            [
                TopicPartition(REMOTE_LOG_METADATA_TOPIC, number, max(0, position.offset - 1))
                for number, position in positions.items()
            ]
        )

    @override
    def append(self, partition: int, value: bytes, on_done: Callable[[AppendResult], None]) -> None:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                on_done(Appended(-1 if offset is None or offset < 0 else offset))
            else:
                self._note_fatal(error)
                reason = _COMPACTED if error.code() == KafkaError.INVALID_RECORD else str(error)
                on_done(AppendFailed(reason, error.code() not in _NOT_WRITTEN))

        try:
            self._producer.produce(
                REMOTE_LOG_METADATA_TOPIC, value=value, partition=partition, on_delivery=on_delivery
            )
        except (BufferError, KafkaException) as e:
            if isinstance(e, KafkaException):
                self._note_fatal(e.args[0])
            on_done(AppendFailed(str(e), maybe_written=False))

    def _serve(self, timeout_s: float) -> None:
        """Run the callbacks of appends."""
        try:
            self._producer.poll(timeout_s)
        except KafkaException as e:  # raised for a fatal error
            if not self._note_fatal(e.args[0]):
                raise

    def _note_fatal(self, error: KafkaError) -> bool:
        # A producer in fatal state refuses with _FATAL, which does not call itself fatal.
        is_fatal = error.fatal() or error.code() == KafkaError._FATAL
        if is_fatal and self.failure is None:
            self.failure = str(error)
        return bool(is_fatal)

    @override
    def ask_end(self, partition: int, on_done: Callable[[int | None], None]) -> None:
        self._ends.append((partition, on_done))

    def _ask_ends(self) -> None:
        """Request all ends in one request; answers arrive on the client's thread."""
        ends, self._ends = self._ends, []
        if not ends:
            return
        if self._admin is None:
            # ListOffsets carries the leader epoch known to the client. After error 74 the client
            # repeats it with the same epoch until its metadata is too old.
            ours = self._common | {"metadata.max.age.ms": _ENDS_METADATA_AGE_MS}
            self._admin = make_client(AdminClient, self._passed, ours)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call] # no stub
        wanted = {TopicPartition(REMOTE_LOG_METADATA_TOPIC, number): latest for number, _ in ends}
        asked = self._admin.list_offsets(wanted, request_timeout=_LOOKUP_SECONDS)
        answers = {at.partition: answer for at, answer in asked.items()}
        for number, on_done in ends:
            answers[number].add_done_callback(partial(self._end_answered, on_done))

    def _end_answered(self, on_done: Callable[[int | None], None], answer: "Future[Any]") -> None:
        end = None if answer.exception() is not None else answer.result().offset
        self._end_answers.put(partial(on_done, end))

    @override
    def poll(self, timeout_ms: int) -> list[TopicEvent]:
        self._ask_ends()
        while not self._end_answers.empty():
            self._end_answers.get()()
        self._serve(0)
        if not self._positions:
            self._serve(timeout_ms / 1_000)
            return []
        events: list[TopicEvent] = []
        message = self._consumer.poll(timeout_ms / 1_000)
        while message is not None:
            event = self._event(message)
            if event is not None:
                events.append(event)
            message = self._consumer.poll(0) if len(events) < _BATCH_MAX else None
        self._serve(0)
        return events

    @override
    def close(self) -> None:
        try:
            self._producer.flush(_FLUSH_SECONDS)
        except KafkaException as e:
            self._note_fatal(e.args[0])
        self._consumer.close()

    def _event(self, message: Message) -> TopicEvent | None:
        error = message.error()
        number, offset = message.partition(), message.offset()
        if number is None or offset is None:
            self._outage.failed(error)
            return None
        partition = number
        if partition not in self._positions:
            return None  # of an earlier assignment
        if error is None:
            self._outage.succeeded()
            return self._record(partition, offset, message)
        if error.code() == KafkaError._PARTITION_EOF:
            self._outage.succeeded()
            if offset < self._positions[partition].offset:
                return self._diverged(partition, f"the log ends at {offset}")
            return None if partition in self._unconfirmed else ReachedEnd(partition, offset)
        if error.code() in _DIVERGED:
            if self._positions[partition] == START:  # the log start was moved: read from there
                self._consumer.seek(
                    TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition, OFFSET_BEGINNING)
                )
                return None
            return self._diverged(partition, str(error))
        if error.code() in _DAMAGED:
            return Unreadable(partition, damaged(partition, offset))
        self._outage.failed(error)
        return None

    def _record(self, partition: int, offset: int, message: Message) -> TopicEvent | None:
        position = self._positions[partition]
        epoch = message.leader_epoch()
        epoch = -1 if epoch is None else epoch
        if partition in self._unconfirmed:
            if offset != position.offset - 1 or epoch != position.leader_epoch:
                return self._diverged(partition, f"has epoch {epoch} at offset {offset}")
            self._unconfirmed.discard(partition)
            return None
        if offset < position.offset:
            return None
        changed = position.offset > 0 and epoch != position.leader_epoch
        if changed and self._confirmed_again.get(partition) != position.offset:
            # a new leader: check that its log still holds the record before
            self._confirmed_again[partition] = position.offset
            self._unconfirmed.add(partition)
            self._consumer.seek(
                TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition, position.offset - 1)
            )
            return None
        self._positions[partition] = Position(offset + 1, epoch)
        return TopicRecord(partition, offset, epoch, message.value())

    def _diverged(self, partition: int, reason: str) -> Diverged:
        position = self._positions.pop(partition)
        self._unconfirmed.discard(partition)
        return Diverged(partition, f"read up to {position}: {reason}")


def make_client(client: type[Client], passed: Mapping[str, str], ours: dict[str, Any]) -> Client:
    """Make a client; settings that librdkafka lacks are dropped with a warning."""
    passed = dict(passed)
    while True:
        try:
            return client({**passed, **ours})
        except KafkaException as e:
            unknown = _UNKNOWN_KEY.search(str(e))
            if unknown is None or unknown.group(1) not in passed:
                raise ValueError(f"settings of the metadata topic's clients: {e}") from e
            log.warning("excluded a client setting that librdkafka has not: %s", unknown.group(1))
            del passed[unknown.group(1)]
