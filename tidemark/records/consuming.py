"""Reads records of a topic through the brokers, to a place that a function writes to.

Without a group the partitions are assigned and nothing is committed. In a group the coordinator
gives partitions, and the offsets of what was written are committed.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka_client.blocking import ClusterError, UnreachableError
from tidemark.records.client import DISCONNECTED, RecordsClient, is_transient
from tidemark.records.formats import Consumed
from tidemark.records.places import AtTime, Bounds, Place, PlaceError, Word, describe, starts
from tidemark.records.progress import Ahead
from tidemark.records.settings import Translated
from tidemark.records.waiting import Code, Waiting

_BATCH: Final = 500
_WAIT_S: Final = 0.2
SILENT_S_MAX: Final = 30.0
"""So long no broker may be reached before a command that has an end gives up."""
_NO_GROUP: Final = "tidemark-no-group"
"""`confluent_kafka` wants a group; nothing is asked of it."""
_QUEUED_MIN: Final = 100_000
_TIMESTAMP_NONE: Final = 0

Write = Callable[[list[Consumed]], None]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """The records to read.

    Attributes:
        place: where to begin; in a group: where it has committed nothing.
        partitions: only these; none: all.
        count_max: so many records; None: all.
        is_endless: wait for new records; else end where each log ends when the command begins.
        idle_s_max: end when no record came for so long; None: wait.
        group: whose offsets are used and committed; None: no group is joined.
    """

    topic: str
    place: Place
    partitions: tuple[int, ...] = ()
    count_max: int | None = None
    is_endless: bool = False
    idle_s_max: float | None = None
    group: str | None = None


class IdleError(ClusterError):
    """No record came for as long as the user waits."""


def open_consumer(bootstrap: str, given: Translated, asked: Asked) -> RecordsClient:
    """A client that reads what is asked; nothing is asked of a broker yet.

    Raises:
        ClusterError: a setting is unknown, or has no such value.
    """
    from confluent_kafka import Consumer

    ours: dict[str, Any] = {
        "group.id": asked.group or _NO_GROUP,
        "enable.partition.eof": True,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "queued.min.messages": min(asked.count_max or _QUEUED_MIN, _QUEUED_MIN),
    }
    if asked.group is None:
        ours["enable.auto.commit"] = False
    else:
        ours["auto.offset.reset"] = asked.place.value if isinstance(asked.place, Word) else "error"
    defaults = {"isolation.level": "read_uncommitted"}
    settings = Translated(defaults | dict(given.settings), given.api_timeout_ms, ())
    return RecordsClient(Consumer, bootstrap, settings, ours)


class Reading:
    """One run of the command."""

    def __init__(
        self, client: RecordsClient, asked: Asked, write: Write, is_heard: Callable[[], bool],
        say: Say, code: Code,
    ) -> None:  # fmt: skip
        """Take what it needs.

        Args:
            client: of `open_consumer`; closed at the end.
            asked: what to read.
            write: gets records in the order in which they came; returns when they are written.
            is_heard: whether anybody reads on the other side.
            say: gets sentences for the user.
            code: asks why nothing comes.
        """
        self._client, self._asked, self._write = client, asked, write
        self._is_heard, self._say = is_heard, say
        self._ahead = Ahead(asked.count_max)
        self._silent_since: float | None = None
        self._waiting = Waiting(code, say)
        self._next: dict[int, int] = {}  # by partition, where more than its end is known of it

    def run(self) -> int:
        """Read until all that is asked for was written; the number of records.

        Raises:
            UnreachableError: no broker answers.
            IdleError: no record came in time, and some are left.
            ClusterError: the topic or a partition is not there, no partition holds the offset, or a
                broker refuses.
        """
        consumer = self._client.client
        try:
            self._begin()
            self._loop()
            self._commit_now()
        finally:
            consumer.close()
        return self._ahead.taken

    def _begin(self) -> None:
        asked, client = self._asked, self._client
        there = client.partitions(asked.topic)
        for one in asked.partitions:
            client.check_partition(asked.topic, there, one)
        if asked.group is not None:
            client.client.subscribe(
                [asked.topic], on_assign=self._on_assign, on_revoke=self._on_revoke
            )
            return
        held = client.bounds(asked.topic, sorted(set(asked.partitions)) or there)
        times = {}
        if isinstance(asked.place, AtTime):
            times = client.at_times(asked.topic, list(held), asked.place.ms)
        try:
            found = starts(asked.topic, asked.place, held, times)
        except PlaceError as error:
            raise ClusterError(f"{error}; asked at {client.bootstrap}") from None
        if found.excluded:
            self._say(f"excluded, for it is out of range: {describe(asked.topic, found.excluded)}")
        self._assign(found.offsets, held)

    def _assign(self, offsets: Mapping[int, int], held: Mapping[int, Bounds]) -> None:
        from confluent_kafka import TopicPartition

        if self._asked.is_endless:
            ends: dict[int, int | None] = dict.fromkeys(offsets)
        else:
            ends = {one: held[one].end for one in offsets if offsets[one] < held[one].end}
        self._ahead.assigned(ends)
        self._next = {one: offsets[one] for one in ends}
        topic = self._asked.topic
        self._client.client.assign([TopicPartition(topic, one, offsets[one]) for one in ends])

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        """The group gave partitions, perhaps none.

        The consumer continues where the group has committed, which its first event shows: a record,
        or the end.
        """
        numbers = [one.partition for one in partitions]
        self._next = {}
        if self._asked.is_endless:
            self._ahead.assigned(dict.fromkeys(numbers))
        else:
            held = self._client.bounds(self._asked.topic, numbers)
            self._ahead.assigned({one: bounds.end for one, bounds in held.items()})
            if not numbers:
                self._say(f"other members of group {self._asked.group} have all partitions")

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._ahead.assigned(None)

    def _loop(self) -> None:
        consumer, asked = self._client.client, self._asked
        last = last_sign = time.monotonic()
        while not self._ahead.is_done and self._is_heard():
            messages = consumer.consume(_BATCH, _WAIT_S)
            now = time.monotonic()
            if records := list(self._records(messages)):
                last, self._silent_since = now, None
                self._write(records)
                self._commit_later(records)
            elif messages:
                self._silent_since = None
            if messages:
                last_sign = now
                self._waiting.came()
            elif waited := self._waited_for():
                self._waiting.silent(asked.topic, waited, now - last_sign)
            self._check_connection(now)
            if asked.idle_s_max is not None and now - last > asked.idle_s_max:
                if not asked.is_endless:
                    raise IdleError(
                        f"no record of {asked.topic} came from {self._client.bootstrap} within"
                        f" {asked.idle_s_max:g} s, and some are left"
                    )
                return

    def _records(self, messages: Iterable[Any]) -> Iterable[Consumed]:
        from confluent_kafka import KafkaError

        for message in messages:
            error = message.error()
            if error is None:
                self._next[message.partition()] = message.offset() + 1
                if self._ahead.takes(message.partition(), message.offset()):
                    yield _consumed(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._end(message.partition(), message.offset())
            else:
                self._refuse(message, error)

    def _waited_for(self) -> dict[int, int]:
        """The offsets that come next, of partitions that do not end there for now."""
        return {one: self._next[one] for one in self._ahead.partitions if one in self._next}

    def _end(self, partition: int, offset: int) -> None:
        """The replica that is read ends here for now: it may be a follower behind its leader."""
        self._next.pop(partition, None)
        if self._ahead.is_short(partition, offset):
            held = self._client.bounds(self._asked.topic, [partition])[partition]
            if held.end > offset:  # else the leader lost its end, too
                return
        self._ahead.reached(partition)

    def _refuse(self, message: Any, error: Any) -> None:
        from confluent_kafka import KafkaError

        topic, partition = message.topic() or self._asked.topic, message.partition()
        if is_transient(error):
            self._say(f"{topic} at {self._client.bootstrap}: {error.str()}; trying again")
            return
        where = f"{topic}-{partition}" if partition is not None and partition >= 0 else topic
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise ClusterError(
                f"{where}: the offset to read next is out of range: its records were deleted while"
                " they were read, or its log was cut"
            )
        raise ClusterError(f"{where} at {self._client.bootstrap}: {error.str()}")

    def _commit_later(self, records: list[Consumed]) -> None:
        """Mark what was written as done: the client commits it now and then, and when it closes."""
        if self._asked.group is None:
            return
        from confluent_kafka import TopicPartition

        last = {one.partition: one.offset for one in records}
        places = [TopicPartition(self._asked.topic, one, at + 1) for one, at in last.items()]
        self._client.client.store_offsets(offsets=places)

    def _commit_now(self) -> None:
        """Commit what was written; closing would do it, and not say where it failed."""
        if self._asked.group is None or not self._ahead.taken:
            return
        from confluent_kafka import KafkaError, KafkaException

        try:
            self._client.client.commit(asynchronous=False)
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() != KafkaError._NO_OFFSET:  # all of it is committed already
                raise ClusterError(
                    f"group {self._asked.group} at {self._client.bootstrap}: what was printed was"
                    f" not committed, and comes again: {cause.str()}"
                ) from None

    def _check_connection(self, now: float) -> None:
        why = self._client.trouble()
        if why is None or why == DISCONNECTED:  # it is opened again when it is needed
            return
        if self._silent_since is None:
            self._silent_since = now
            self._say(f"{self._client.bootstrap}: {why}; trying again")
        elif now - self._silent_since > SILENT_S_MAX and not self._asked.is_endless:
            raise UnreachableError(
                f"{self._client.bootstrap}: {why}; nothing came for {SILENT_S_MAX:g} s"
            )


def _consumed(message: Any) -> Consumed:
    kind, at = message.timestamp()
    return Consumed(
        message.topic(),
        message.partition(),
        message.offset(),
        None if kind == _TIMESTAMP_NONE else at,
        message.key(),
        message.value(),
        message.headers() or [],
    )
