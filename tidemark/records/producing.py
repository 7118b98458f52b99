"""Writes lines as records of a topic, and counts what brokers acknowledge and refuse."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidemark.records.client import RecordsClient
from tidemark.records.lines import LineError, LineForm
from tidemark.records.settings import Translated

_POLL_S: Final = 0.2
_FLUSH_S: Final = 0.5
_MESSAGE_BYTES_MAX: Final = 1_000_000_000
"""The broker says what is too large: it knows the topic."""
FAILURES_MAX: Final = 20
"""So many lines that failed are named; the others are counted."""
_ALL: Final = ("all", "-1")


@dataclass(frozen=True, slots=True)
class Asked:
    """What to write.

    Attributes:
        partition: of all records; None: by their keys, as Java's clients do it.
        headers: of all records.
    """

    topic: str
    form: LineForm
    partition: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(slots=True)
class Outcome:
    """What became of the lines.

    Attributes:
        acknowledged: by brokers, as `acks` says; of `acks=0`, which no broker answers: sent.
        failed: lines that were sent and refused, or not answered for in time.
        failures: of the first of them: number of the line, from 1, and the reason.
        unread: why reading ended before the end of the input; None: it did not.
        is_interrupted: by the user.
    """

    acknowledged: int = 0
    failed: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)
    unread: str | None = None
    is_interrupted: bool = False

    def note(self, line: int, reason: str | None) -> None:
        """A line was acknowledged, or has failed for a reason."""
        if reason is None:
            self.acknowledged += 1
            return
        self.failed += 1
        if len(self.failures) < FAILURES_MAX:
            self.failures.append((line, reason))

    @property
    def is_good(self) -> bool:
        """Whether each line is a record now."""
        return not self.failed and self.unread is None and not self.is_interrupted


def open_producer(
    bootstrap: str, given: Translated, acks: str | None, compression: str | None
) -> RecordsClient:
    """A producer; nothing is asked of a broker yet.

    Args:
        bootstrap: `host:port`, several with commas between.
        given: the user's settings.
        acks: 0, 1, all or -1; None: as the settings say, or all.
        compression: a codec; None: as the settings say.

    Raises:
        ClusterError: a setting is unknown, or has no such value.
    """
    from confluent_kafka import Producer

    defaults = {
        "acks": "all",
        "linger.ms": "5",
        "partitioner": "murmur2_random",  # as Java's clients
        "message.max.bytes": str(_MESSAGE_BYTES_MAX),
        "delivery.timeout.ms": "30000",
    }
    settings: dict[str, str] = defaults | dict(given.settings)
    ours: dict[str, Any] = {}
    if acks is not None:
        ours["acks"] = acks
    if compression is not None:
        ours["compression.type"] = compression
    is_all = (acks or settings["acks"]).strip().lower() in _ALL
    settings.setdefault("enable.idempotence", str(is_all).lower())
    return RecordsClient(Producer, bootstrap, Translated(settings, given.api_timeout_ms, ()), ours)


def produce(client: RecordsClient, asked: Asked, lines: Iterable[bytes]) -> Outcome:
    """Send each line, and wait until all are answered for.

    Ctrl-C ends reading: what was sent until then is waited for, until Ctrl-C comes again.

    Args:
        client: of `open_producer`.
        asked: what to make of them.
        lines: each with a newline at its end; the last one may have none.

    Raises:
        UnreachableError: no broker answers the first question.
        ClusterError: the topic or the partition is not there.
    """
    there = client.partitions_made(asked.topic)
    if asked.partition is not None:
        client.check_partition(asked.topic, there, asked.partition)
    outcome = Outcome()
    try:
        _send(client, asked, lines, outcome)
    except KeyboardInterrupt:
        outcome.is_interrupted = True
    try:
        while client.client.flush(_FLUSH_S):
            pass
    except KeyboardInterrupt:
        outcome.is_interrupted = True
        client.client.purge()
        client.client.flush(_FLUSH_S)
    return outcome


def _send(client: RecordsClient, asked: Asked, lines: Iterable[bytes], outcome: Outcome) -> None:
    from confluent_kafka import KafkaException

    given: dict[str, Any] = {"headers": list(asked.headers)} if asked.headers else {}
    if asked.partition is not None:
        given["partition"] = asked.partition
    for number, line in enumerate(lines, start=1):
        try:
            key, value = asked.form.record_of(line.removesuffix(b"\n"))
        except LineError as error:
            outcome.unread = f"line {number}: {error}"
            return
        record = {
            "key": key,
            "value": value,
            "on_delivery": _noting(client, outcome, number),
            **given,
        }
        try:
            _enqueue(client.client, asked.topic, record)
        except KafkaException as error:
            outcome.note(number, error.args[0].str())


def _enqueue(producer: Any, topic: str, record: Mapping[str, Any]) -> None:
    """Hand a record to the producer, when there is room for it."""
    while True:
        try:
            producer.produce(topic, **record)
        except BufferError:
            producer.poll(_POLL_S)
        else:
            producer.poll(0)
            return


def _noting(client: RecordsClient, outcome: Outcome, number: int) -> Any:
    def done(error: Any, _message: Any) -> None:
        outcome.note(number, None if error is None else client.explain(error))

    return done
