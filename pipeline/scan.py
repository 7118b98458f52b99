"""The reader for whoever has no Spark: a topic as Arrow record batches, in one process.

    reader = scan("orders", bucket="s3://logs/kafka", columns=["offset", "value"])
    polars.from_arrow(reader)

Partitions come one after the other, each in the order of its offsets. Memory is bounded, whatever
the topic's size; one thread reads ahead.
"""

import logging
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypedDict, Unpack

import pyarrow as pa

from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.primitives import uuid_from_text
from pipeline.client_names import client_name, why_idle
from pipeline.columns import DEFAULT_COLUMNS, schema_of
from pipeline.errors import OptionError
from pipeline.opening import open_log
from pipeline.read.lost import LostOffsets
from pipeline.read.split import BATCH_BYTES, read_split
from pipeline.scan_range import EARLIEST, LATEST, Places, offset_ranges
from pipeline.store import address_of_url
from pipeline.values import (
    ClusterAddress,
    Isolation,
    Plan,
    Source,
    SplitLimits,
    StoreAddress,
    Where,
)

log = logging.getLogger(__name__)

_WHOLE = SplitLimits(target_bytes=1 << 62)
"""One process reads in order: cutting gains nothing."""


class ScanOptions(TypedDict, total=False):
    """Further options of a scan.

    Attributes:
        isolation: `read_uncommitted` (default) or `read_committed`.
        partitions: numbers; default: all of the topic.
        storage: settings of the storage plugin (`rsm.config.*`, prefix removed), for what the URL
            does not say. With `class` among them the plugin's class name.
        client: settings of the Kafka client; `isolation.level` is meant as `isolation`.
        fail_on_data_loss: False: offsets that are gone are skipped, counted and logged.
        topic_id: of a bucket that has several topics of this name.
        log_start: of a bucket that is read alone: partition to offset; nothing below is read.
        batch_bytes: about the size of one record batch.
    """

    isolation: str
    partitions: Sequence[int]
    storage: Mapping[str, str]
    client: Mapping[str, str]
    fail_on_data_loss: bool
    topic_id: str
    log_start: Mapping[int, int]
    batch_bytes: int


@dataclass(slots=True)
class Scan:
    """A scan that is planned; nothing is read yet.

    Attributes:
        lost: filled while batches are read.
    """

    plan: Plan
    source: Source
    columns: tuple[str, ...]
    batch_bytes: int
    lost: LostOffsets = field(default_factory=LostOffsets)

    @property
    def schema(self) -> pa.Schema:
        """Of every batch."""
        return schema_of(self.columns)

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Read. Closing the generator early ends its thread.

        Raises:
            PipelineError, ClusterError: as `pipeline.read.split.read_split`.
        """
        for split in self.plan.splits:
            batches = read_split(
                split, self.source, self.columns, batch_bytes=self.batch_bytes, lost=self.lost
            )
            with closing(batches):
                yield from batches


def scan(
    topic: str,
    *,
    bootstrap_servers: str | None = None,
    bucket: str | os.PathLike[str] | None = None,
    start: Places = EARLIEST,
    end: Places = LATEST,
    columns: Sequence[str] | None = None,
    **options: Unpack[ScanOptions],
) -> pa.RecordBatchReader:
    """Read a topic as Arrow.

    The reader ends its thread when it is used up or dropped.

    Args:
        topic: its name.
        bootstrap_servers: of the cluster; without `bucket` it is asked where the store is.
        bucket: URL or directory of the store; alone, no broker is needed, and the range is what
            the store holds.
        start: first offset (inclusive), `earliest`, `latest`, a datetime, or one by partition.
        end: behind the last offset (exclusive), or as `start`.
        columns: those to build, in this order; default: all but `headers`.
        options: see `ScanOptions`.

    Raises:
        OptionError: an option is wrong.
        PipelineError, ClusterError: the log cannot be opened or planned; the reader raises what
            reading meets.
    """
    planned = plan_scan(
        topic,
        where_of(bootstrap_servers, None if bucket is None else os.fspath(bucket), topic, options),
        (start, end),
        columns,
        options,
    )
    return pa.RecordBatchReader.from_batches(planned.schema, planned.batches())


def where_of(
    bootstrap_servers: str | None, bucket: str | None, topic: str, options: ScanOptions
) -> Where:
    """The log that these options name.

    Raises:
        OptionError: neither cluster nor bucket, or a wrong option.
    """
    for name in options:
        if name not in ScanOptions.__annotations__:
            near = get_close_matches(name, ScanOptions.__annotations__, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise OptionError(f"scan has no option {name[:100]!r}{hint}")
    client = _client(options.get("client", {}), bootstrap_servers)
    isolation = _isolation(options.get("isolation"), client.pop("isolation.level", None))
    if bootstrap_servers is None and bucket is None:
        raise OptionError("say where the log is: bootstrap_servers='host:port' or bucket='URL'")
    cluster = None
    if bootstrap_servers is not None:
        if options.get("log_start"):
            raise OptionError(
                "log_start is for a bucket that is read alone: leave it out, brokers know where"
                " logs start"
            )
        cluster = ClusterAddress(bootstrap_servers, client)
    return Where(
        cluster=cluster,
        store=_store(bucket, options.get("storage", {})),
        isolation=isolation,
        fail_on_data_loss=options.get("fail_on_data_loss", True),
        topic_ids=_topic_ids(topic, options.get("topic_id")),
        log_starts=_log_starts(topic, options.get("log_start", {})),
    )


def plan_scan(
    topic: str,
    where: Where,
    span: tuple[Places, Places],
    columns: Sequence[str] | None,
    options: ScanOptions,
) -> Scan:
    """Ask the log what is to be read.

    Args:
        topic: its name.
        where: the log.
        span: start and end, see `scan`.
        columns: None: the default ones.
        options: `partitions` and `batch_bytes` of them.

    Raises:
        OptionError, PipelineError, ClusterError: see `scan`.
    """
    if columns is not None and (isinstance(columns, str) or not columns):
        raise OptionError(f"columns={columns!r}: give a list of one or more names")
    names = tuple(DEFAULT_COLUMNS if columns is None else columns)
    schema_of(names)
    opened = open_log(where)
    with closing(opened):
        partitions = _chosen(opened.partitions([topic]), options.get("partitions"))
        plan = opened.plan(offset_ranges(opened, partitions, *span), _WHOLE)
        source = opened.source
    for note in plan.facts.notes:
        log.info("%s: %s", topic, note)
    for warning in plan.facts.warnings:
        log.warning("%s: %s", topic, warning)
    lost = LostOffsets()
    if plan.facts.lost_offsets:
        lost.add(plan.facts.lost_offsets, f"{topic}: in no tier when the plan was made")
    return Scan(plan, source, names, options.get("batch_bytes", BATCH_BYTES), lost)


def isolation_of(name: str) -> Isolation:
    """The isolation level of that name.

    Raises:
        OptionError: there is none.
    """
    try:
        return Isolation[name.upper()]
    except KeyError:
        raise OptionError(
            f"isolation={name[:100]!r}: allowed is read_uncommitted or read_committed"
        ) from None


def _client(given: Mapping[str, str], bootstrap: str | None) -> dict[str, str]:
    """The settings under their proper names, without those that change nothing."""
    found = {}
    for written, value in given.items():
        name = client_name(written.strip().lower(), "client setting ")
        if name == "bootstrap.servers":
            if value.strip() != bootstrap:
                raise OptionError(
                    "client setting bootstrap.servers: brokers are named by bootstrap_servers in a"
                    " scan, --bootstrap-server on the command line"
                )
            continue
        reason = why_idle(name)
        if reason is None:
            found[name] = value
        else:
            log.warning("client setting %s has no effect: %s", name, reason)
    return found


def _isolation(given: str | None, of_client: str | None) -> Isolation:
    """What both say; without a word all records are read."""
    said = {isolation_of(one) for one in (given, of_client) if one is not None}
    if len(said) > 1:
        raise OptionError(
            f"isolation={given} contradicts the client setting isolation.level={of_client}"
        )
    return said.pop() if said else Isolation.READ_UNCOMMITTED


def _store(bucket: str | None, settings: Mapping[str, str]) -> StoreAddress | None:
    own = {name: value for name, value in settings.items() if name != "class"}
    class_name = settings.get("class")
    if bucket is not None:
        address = address_of_url(bucket, own)
        return StoreAddress(class_name, address.settings) if class_name else address
    if class_name:
        return StoreAddress(class_name, own)
    if own:
        raise OptionError("storage settings need a store: name it by bucket, or by 'class'")
    return None


def _log_starts(topic: str, starts: Mapping[Any, Any]) -> dict[TopicPartition, int]:
    for number, offset in starts.items():
        if not isinstance(number, int) or not isinstance(offset, int) or offset < 0:
            raise OptionError(
                f"log_start={{{number!r}: {offset!r}}}: allowed is {{partition: offset}}, both"
                " numbers from 0 on"
            )
    return {TopicPartition(topic, number): offset for number, offset in starts.items()}


def _topic_ids(topic: str, text: str | None) -> dict[str, bytes]:
    if text is None:
        return {}
    try:
        return {topic: uuid_from_text(text)}
    except ValueError:
        raise OptionError(
            f"topic_id={text[:100]!r}: allowed are the 22 characters of an id"
        ) from None


def _chosen(
    partitions: list[TopicPartition], numbers: Sequence[int] | None
) -> list[TopicPartition]:
    if numbers is None:
        return partitions
    if isinstance(numbers, int):
        raise OptionError(f"partitions={numbers}: give a list of numbers")
    known = {each.partition for each in partitions}
    for number in numbers:
        if number not in known:
            raise OptionError(f"there is no partition {number!r}: there are {len(known)}")
    return [each for each in partitions if each.partition in set(numbers)]
