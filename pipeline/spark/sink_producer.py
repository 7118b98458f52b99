"""Produces records inside an executor: at least once, and done only when all are acknowledged."""

import logging
from collections.abc import Iterable
from typing import Any, Final

from pipeline.errors import OptionError, PipelineError
from pipeline.spark.sink_options import SinkSettings, nearest
from pipeline.spark.sink_rows import Record
from runtime.clock import SystemClock

_log = logging.getLogger(__name__)

_POLL_EVERY: Final = 1000
_POLL_S: Final = 0.1
_FLUSH_EXTRA_S: Final = 10.0
_PURGE_S: Final = 1.0
_NO_PROPERTY: Final = "tidemark.no.such.property"


class DeliveryError(PipelineError):
    """Records were not acknowledged; names the topic-partition and the reason."""


def check_client(settings: SinkSettings) -> None:
    """Refuse on the driver what the client would refuse in each task: names and values.

    The client sets its properties in their order, and the last one here does not exist. So no
    client is made: no thread, no connection, and no look for files that only executors have.

    Raises:
        OptionError: the client has no such property, or refuses a value.
    """
    from confluent_kafka import KafkaException, Producer

    try:
        Producer({**settings.client, _NO_PROPERTY: ""})
    except KafkaException as error:
        if _NO_PROPERTY not in error.args[0].str():
            raise OptionError(_refused(error, settings)) from None  # its text may hold a secret


def produce(records: Iterable[Record], settings: SinkSettings) -> int:
    """Produce records and wait until the brokers have all; returns how many.

    An error is noticed within the next thousand records. What was sent before stays written:
    Spark's next attempt writes it again.

    Raises:
        OptionError: the client refuses a setting.
        DeliveryError: a record was refused, or not acknowledged in time.
    """
    failures = _Failures()
    producer = _open(settings, failures)
    try:
        return _produce(producer, records, settings, failures)
    except BaseException:
        producer.purge()
        producer.flush(_PURGE_S)
        raise


def _produce(
    producer: Any, records: Iterable[Record], settings: SinkSettings, failures: "_Failures"
) -> int:
    count = 0
    for record in records:
        _send(producer, record, settings, failures)
        count += 1
        if count % _POLL_EVERY == 0:
            producer.poll(0)
            failures.check()
    left = producer.flush(settings.delivery_ms / 1000 + _FLUSH_EXTRA_S)
    failures.check()
    if left:
        raise DeliveryError(
            f"{left} of {count} records were not acknowledged within"
            f" {settings.delivery_ms} ms (kafka.delivery.timeout.ms)"
        )
    return count


class _Failures:
    """Failed deliveries: the first by name, the others by number."""

    __slots__ = ("count", "first")

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def note(self, error: Any, message: Any) -> None:
        if error is None:
            return
        self.count += 1
        if self.count == 1:
            partition = message.partition()
            is_placed = partition is not None and partition >= 0  # None: brokers were never there
            where = f"{message.topic()}-{partition}" if is_placed else message.topic()
            self.first = f"{where}: {error.str()}"

    def check(self) -> None:
        if self.count:
            more = f" (and {self.count - 1} more)" if self.count > 1 else ""
            raise DeliveryError(f"a record was not written to {self.first}{more}")


def _open(settings: SinkSettings, failures: _Failures) -> Any:
    from confluent_kafka import KafkaException, Producer

    properties = {**settings.client, "delivery.report.only.error": True}
    try:
        return Producer({**properties, "on_delivery": failures.note}, logger=_log)
    except KafkaException as error:
        raise OptionError(_refused(error, settings)) from None  # its text may hold a secret


def _refused(error: Any, settings: SinkSettings) -> str:
    text = " ".join(error.args[0].str().split())  # some of its texts end with a newline
    names = sorted(settings.client, key=len, reverse=True)
    named = next((name for name in names if f'"{name}"' in text or f"`{name}`" in text), None)
    if named is None:
        shown = text
        for value in settings.client.values():
            if len(value) > 3:
                shown = shown.replace(value, "...")
        return f"the Kafka client cannot be used with these kafka.* options: {shown}"
    is_unknown = "No such" in text
    known = f"has no such property{nearest(named)}" if is_unknown else "refuses its value"
    return f"option kafka.{named}: the Kafka client (librdkafka) {known}"


def _send(producer: Any, record: Record, settings: SinkSettings, failures: _Failures) -> None:
    give_up_ms: float | None = None
    while not _queued(producer, record, failures):
        producer.poll(_POLL_S)
        failures.check()
        now_ms = SystemClock().monotonic_ms()
        if give_up_ms is None:
            give_up_ms = now_ms + settings.block_ms
        elif now_ms > give_up_ms:
            raise DeliveryError(
                f"the producer's queue stayed full for {settings.block_ms} ms"
                f" (kafka.max.block.ms) before a record for {record.topic}"
            )


def _queued(producer: Any, record: Record, failures: _Failures) -> bool:
    from confluent_kafka import KafkaException

    try:
        producer.produce(
            record.topic,
            value=record.value,
            key=record.key,
            partition=record.partition,
            headers=record.headers,
        )
    except BufferError:
        return False
    except KafkaException as error:
        failures.check()
        raise DeliveryError(
            f"a record was not written to {record.topic}: {error.args[0].str()}"
        ) from None
    return True
