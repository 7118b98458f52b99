"""Writes lines as records of a topic, and counts what brokers acknowledge and refuse."""

import os
import select
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidemark.records.client import DISCONNECTED, RecordsClient
from tidemark.records.lines import LineError, LineForm
from tidemark.records.settings import Translated

_POLL_S: Final = 0.2
_FLUSH_S: Final = 0.5
_MESSAGE_BYTES_MAX: Final = 1_000_000_000
"""The broker says what is too large: it knows the topic."""
FAILURES_MAX: Final = 20
"""So many lines that failed are named; the others are counted."""
_IDLE_MS: Final = 200
_READ_BYTES: Final = 1 << 16
_SAY_S: Final = 5.0
"""A broker that stays away is said so often."""

Say = Callable[[str], None]
_ALL: Final = ("all", "-1")


@dataclass(frozen=True, slots=True)
class Asked:
    """The records to write.

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
    """The result for the lines.

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

    def note(self, line: int, reason: str | None, say: Say) -> None:
        """A line was acknowledged, or has failed for a reason, which is said of the first ones."""
        if reason is None:
            self.acknowledged += 1
            return
        self.failed += 1
        if len(self.failures) < FAILURES_MAX:
            self.failures.append((line, reason))
            say(f"line {line}: {reason}")

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


def lines_of(descriptor: int) -> Iterator[bytes | None]:
    """Lines of a file or a pipe; None now and then where none comes.

    Args:
        descriptor: of an open file, that has no other reader.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    begun = bytearray()
    while True:
        if not poll.poll(_IDLE_MS):
            yield None
            continue
        data = os.read(descriptor, _READ_BYTES)
        begun += data
        if not data:
            break
        if b"\n" in data:
            *whole, last = bytes(begun).split(b"\n")
            begun = bytearray(last)
            yield from (line + b"\n" for line in whole)
    if begun:
        yield bytes(begun)


class _Wait:
    """Says that a broker is away while records wait for it, and never more often than `_SAY_S`."""

    def __init__(self, client: RecordsClient, outcome: Outcome, say: Say) -> None:
        self._client, self._outcome, self._say = client, outcome, say
        self._why: str | None = None
        self._said_s, self._acknowledged = -_SAY_S, 0

    def noting(self, line: int) -> Callable[[Any, Any], None]:
        """The callback of a line's delivery."""

        def done(error: Any, _message: Any) -> None:
            why = None if error is None else self._client.explain(error)
            self._outcome.note(line, why, self._say)

        return done

    def look(self) -> None:
        """Call it after the client was polled."""
        if self._outcome.acknowledged > self._acknowledged:
            self._acknowledged, self._why = self._outcome.acknowledged, None
        why = self._client.trouble()
        if why not in (None, DISCONNECTED):  # a connection that rested is opened again
            self._why = why
        if self._why is None or not len(self._client.client):
            return
        now_s = time.monotonic()
        if now_s - self._said_s >= _SAY_S:
            self._said_s = now_s
            self._say(f"{self._client.bootstrap}: {self._why}; waiting for it")


def produce(
    client: RecordsClient, asked: Asked, lines: Iterable[bytes | None], say: Say
) -> Outcome:
    """Send each line, and wait until all are answered for.

    Ctrl-C ends reading: what was sent until then is waited for, until Ctrl-C comes again.

    Args:
        client: of `open_producer`.
        asked: what to make of them.
        lines: each with a newline at its end; the last one may have none. None: none came for a
            while.
        say: gets a sentence at once: the first failures, and that a broker is away.

    Raises:
        UnreachableError: no broker answers the first question.
        ClusterError: the topic or the partition is not there.
    """
    there = client.partitions_made(asked.topic)
    if asked.partition is not None:
        client.check_partition(asked.topic, there, asked.partition)
    outcome = Outcome()
    wait = _Wait(client, outcome, say)
    try:
        _send(client, asked, lines, outcome, wait)
    except KeyboardInterrupt:
        outcome.is_interrupted = True
    try:
        while client.client.flush(_FLUSH_S):
            wait.look()
    except KeyboardInterrupt:
        outcome.is_interrupted = True
        client.client.purge()
        client.client.flush(_FLUSH_S)
    return outcome


def _send(
    client: RecordsClient,
    asked: Asked,
    lines: Iterable[bytes | None],
    outcome: Outcome,
    wait: _Wait,
) -> None:
    from confluent_kafka import KafkaException

    given: dict[str, Any] = {"headers": list(asked.headers)} if asked.headers else {}
    if asked.partition is not None:
        given["partition"] = asked.partition
    number = 0
    for line in lines:
        if line is None:
            client.client.poll(0)
            wait.look()
            continue
        number += 1
        try:
            key, value = asked.form.record_of(line.removesuffix(b"\n"))
        except LineError as error:
            outcome.unread = f"line {number}: {error}"
            return
        on_delivery = wait.noting(number)
        record = {"key": key, "value": value, "on_delivery": on_delivery, **given}
        try:
            _enqueue(client.client, asked.topic, record, wait)
        except KafkaException as error:
            on_delivery(error.args[0], None)


def _enqueue(producer: Any, topic: str, record: Mapping[str, Any], wait: _Wait) -> None:
    """Hand a record to the producer, when there is room for it."""
    while True:
        try:
            producer.produce(topic, **record)
        except BufferError:
            producer.poll(_POLL_S)
        else:
            producer.poll(0)
            return
        finally:
            wait.look()
