"""A client of `confluent_kafka` for one command: quiet, and with the address in each error.

librdkafka tries again for ever and writes its troubles to stderr. A command ends: the first
question gets an answer within some seconds, or the reason is said in one line.
"""

import time
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Final

from broker.config.broker_config import read_properties
from kafka_client.blocking import ClusterError, UnreachableError
from tidemark.records.places import Bounds
from tidemark.records.settings import Translated, translated
from tidemark.remote.options import NAMES_A_BROKER

API_TIMEOUT_MS: Final = 5_000
"""DIFFERS: Kafka's tools wait a minute for a broker that is not there."""
_ATTEMPT_S: Final = 0.5
_PAUSE_S: Final = 0.05
_MADE_S: Final = 2.0
"""Kafka answers that it knows no such topic while it creates it."""
_QUIET: Final[Mapping[str, Any]] = {
    "log_level": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "client.id": "tidemark",
}
DISCONNECTED: Final = "Disconnected"
"""The reason of a connection that was idle for long, or that spoke otherwise than the broker."""
_LIMITS: Final = (
    "limits are max.message.bytes and segment.bytes of the topic and -X message.max.bytes=BYTES"
    " here; for a batch of many lines, -X batch.size=BYTES below them helps"
)


def given_settings(config: Path | None, properties: Mapping[str, str]) -> Translated:
    """The settings of `--command-config` and of `--command-property`, which win.

    Raises:
        ConfigError: the file cannot be read, or a number is none.
        ClientSettingError: a value is for Java alone.
    """
    return translated(({} if config is None else read_properties(config)) | dict(properties))


class RecordsClient:
    """One consumer or producer.

    Attributes:
        client: of `confluent_kafka`.
        bootstrap: the address that it was given.
    """

    def __init__(
        self, make: Callable[[dict[str, Any]], Any], bootstrap: str, given: Translated,
        ours: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Make the client; nothing is asked yet.

        Args:
            make: `Consumer` or `Producer`.
            bootstrap: `host:port`, several with commas between.
            given: the user's settings.
            ours: what the command needs; it wins.

        Raises:
            ClusterError: a setting is unknown, or has no such value.
        """
        from confluent_kafka import KafkaException

        self.bootstrap = bootstrap
        self._timeout_ms = given.api_timeout_ms or API_TIMEOUT_MS
        self._trouble: Any = None
        self._last_trouble: Any = None
        self._is_down = False
        settings = {**_QUIET, **given.settings, **ours, "bootstrap.servers": bootstrap}
        try:
            self.client = make({**settings, "error_cb": self._hear})
        except KafkaException as error:
            raise ClusterError(f"settings of the client: {_said(error)}") from None

    def _hear(self, error: Any) -> None:
        """Keep what says most: `_ALL_BROKERS_DOWN` says less than the errors around it."""
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._is_down = True
        elif not self._is_refused():
            self._trouble = self._last_trouble = error

    def _is_refused(self) -> bool:
        from confluent_kafka import KafkaError

        return self._trouble is not None and self._trouble.code() == KafkaError._AUTHENTICATION

    def trouble(self) -> str | None:
        """Take the last error of a connection, if there was one since the last call."""
        error, self._trouble = self._trouble, None
        return None if error is None else _reason(error.str())

    def explain(self, error: Any) -> str:
        """Why a record was not written; where no broker answered, with the address."""
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
            return f"{error.str()}; {_LIMITS}"
        if error.code() != KafkaError._MSG_TIMED_OUT:
            return str(error.str())
        why = "" if self._last_trouble is None else f": {_reason(self._last_trouble.str())}"
        return f"no broker at {self.bootstrap} has acknowledged it in time{why}"

    def ask(self, question: Callable[[float], Any]) -> Any:
        """Ask until there is an answer.

        Args:
            question: gets the seconds that one attempt may take.

        Raises:
            UnreachableError: there is none in time, or the broker refuses the credentials.
            ClusterError: the cluster refuses.
        """
        from confluent_kafka import KafkaException

        ends_at = time.monotonic() + self._timeout_ms / 1_000
        while True:
            try:
                return question(_ATTEMPT_S)
            except KafkaException as error:
                self.client.poll(0)  # hears what the connection says
                cause = error.args[0]
                if not is_transient(cause):
                    raise ClusterError(f"{self.bootstrap}: {cause.str()}") from None
                if self._is_refused():
                    raise UnreachableError(f"{self.bootstrap}: {self.trouble()}") from None
                if time.monotonic() > ends_at:
                    raise UnreachableError(self._unreachable(cause)) from None
                time.sleep(_PAUSE_S)

    def _unreachable(self, cause: Any) -> str:
        from confluent_kafka import KafkaError

        why = self.trouble()
        if why in (None, DISCONNECTED) and self._is_down:
            why = "it ends the connection: is security.protocol of --command-config right?"
        elif why is None and cause.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
            why = "it takes the connection and says nothing"
        elif why is None:
            why = cause.str()
        return (
            f"no broker answers at {self.bootstrap} ({why}) within {self._timeout_ms / 1_000:g} s;"
            f" {NAMES_A_BROKER}"
        )

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, in order; nothing is created.

        Raises:
            ClusterError: there is no such topic, or it may not be seen.
        """
        topics = self.ask(lambda s: self.client.list_topics(timeout=s)).topics
        if topic not in topics:
            near = get_close_matches(topic, topics, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ClusterError(f"there is no topic {topic} at {self.bootstrap}{hint}")
        return self._numbers(topics[topic], topic)

    def _numbers(self, found: Any, topic: str) -> list[int]:
        if found.error is not None:
            raise ClusterError(f"topic {topic} at {self.bootstrap}: {found.error.str()}")
        return sorted(found.partitions)

    def partitions_made(self, topic: str) -> list[int]:
        """The partitions of a topic; a broker may create one that does not exist, as it is set to.

        Raises:
            ClusterError: there is no such topic, and none is created.
        """
        from confluent_kafka import KafkaError, KafkaException

        unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
        ends_at = time.monotonic() + _MADE_S

        def look(timeout_s: float) -> Any:
            found = self.client.list_topics(topic, timeout=timeout_s).topics[topic]
            code = None if found.error is None else found.error.code()
            if code == KafkaError.LEADER_NOT_AVAILABLE:
                raise KafkaException(found.error)  # it is being made
            return found

        found = self.ask(look)
        while found.error is not None and found.error.code() == unknown:
            if time.monotonic() > ends_at:
                return self.partitions(topic)
            time.sleep(_PAUSE_S)
            found = self.ask(look)
        return self._numbers(found, topic)

    def check_partition(self, topic: str, there: list[int], asked: int) -> None:
        """Look whether a topic has a partition.

        Raises:
            ClusterError: it has not.
        """
        if asked not in there:
            has = "partition 0 only" if len(there) == 1 else f"partitions 0 to {len(there) - 1}"
            raise ClusterError(f"there is no partition {asked} of {topic}: it has {has}")

    def bounds(self, topic: str, partitions: list[int]) -> dict[int, Bounds]:
        """The bounds of partitions; for a consumer that reads committed records: of those.

        Raises:
            ClusterError: one has no leader in time, or may not be read.
        """
        from confluent_kafka import TopicPartition

        found = {}
        for one in partitions:
            place = TopicPartition(topic, one)
            low, high = self.ask(partial(self._watermarks, place))
            found[one] = Bounds(low, high)
        return found

    def _watermarks(self, place: Any, timeout_s: float) -> Any:
        return self.client.get_watermark_offsets(place, timeout=timeout_s)

    def at_times(self, topic: str, partitions: list[int], ms: int) -> dict[int, int]:
        """The offset of the first record that is not earlier; none where no record is as late."""
        from confluent_kafka import TopicPartition

        places = [TopicPartition(topic, one, ms) for one in partitions]
        found = self.ask(lambda s: self.client.offsets_for_times(places, timeout=s))
        for one in found:
            if one.error is not None:
                raise ClusterError(f"{topic}-{one.partition}: {one.error.str()}")
        return {one.partition: one.offset for one in found if one.offset >= 0}


def is_transient(error: Any) -> bool:
    """Whether the same question may be answered later."""
    from confluent_kafka import KafkaError

    later = (
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
    )
    return error.code() in later or bool(error.retriable())


def _said(error: Any) -> str:
    return str(error.args[0].str()) if hasattr(error.args[0], "str") else str(error)


def _reason(text: str) -> str:
    """The text of librdkafka about a connection, without its name for it and the state it is in."""
    return text.partition(": ")[2].partition(" (after ")[0] or text
