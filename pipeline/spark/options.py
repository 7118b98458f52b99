"""All options of a query, read and checked together; nothing is asked of a broker or a store.

Must not know: Spark, Arrow.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_protocol.types import TopicPartition
from pipeline.errors import OptionError
from pipeline.spark.limits import Rates
from pipeline.spark.options_bounds import Bound, Everywhere, check_batch, ending, starting
from pipeline.spark.options_names import (
    BOOTSTRAP,
    ENDINGS,
    LOG_START,
    RATES,
    STRATEGIES,
    TOPIC_ID,
    idle_names,
    spelled,
)
from pipeline.spark.options_pattern import compile_java_pattern
from pipeline.spark.options_values import (
    boolean,
    duration_ms,
    names,
    partition_lists,
    size_bytes,
    whole_number,
)
from pipeline.spark.options_where import where_of
from pipeline.values import SplitLimits, Where

_DELAY: Final = "15m"
_INT32_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Topics:
    """Which partitions a query reads: exactly one of these is given."""

    assigned: tuple[TopicPartition, ...] = ()
    subscribed: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a batch or a stream.

    Attributes:
        columns: in this order; None: those of Spark's Kafka source.
        warnings: sentences for the driver's log.
    """

    topics: Topics
    where: Where
    starting: Bound
    ending: Bound
    limits: SplitLimits
    rates: Rates
    columns: tuple[str, ...] | None
    include_headers: bool
    push_filters: bool
    warnings: tuple[str, ...]


def looks_like_reading(options: Mapping[str, str]) -> bool:
    """Whether one of the options says what to read; a sink has none of them."""
    given = {name.strip().lower() for name in options}
    return any(name.lower() in given for name in STRATEGIES)


def batch_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of `spark.read`.

    Raises:
        OptionError: one is unknown, wrong, or contradicts another one.
    """
    named = spelled(options)
    read = _read(named, Everywhere.EARLIEST, _ignored(named, RATES, "in a batch"))
    check_batch(read.starting, read.ending)
    return read


def stream_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of `spark.readStream`.

    Raises:
        OptionError: one is unknown, wrong, contradicts another one, or is for batches only.
    """
    named = spelled(options)
    for name in ENDINGS:
        if name in named:
            raise OptionError(f"option {name} is for batches only: a stream has no end")
    return _read(named, Everywhere.LATEST, _ignored(named, ("pushFilters",), "in a stream"))


def check_any(options: Mapping[str, str]) -> ReadOptions:
    """The options, before it is known whether a batch or a stream is to come."""
    return _read(spelled(options), Everywhere.EARLIEST, ())


def _read(
    options: Mapping[str, str], default_start: Everywhere, more_warnings: tuple[str, ...]
) -> ReadOptions:
    idle = [f"option {name} has no effect here: {why}" for name, why in idle_names(options)]
    if BOOTSTRAP in options and LOG_START in options:
        idle.append(f"option {LOG_START} has no effect here: brokers know where logs start")
    columns = names("columns", options["columns"]) if "columns" in options else None
    if columns == ():
        raise OptionError("option columns names none: leave it out for all")
    include_headers = boolean("includeHeaders", options.get("includeHeaders", "false"))
    if include_headers and columns is not None and "headers" not in columns:
        raise OptionError("option includeHeaders=true: but columns does not name headers")
    topics, where = _topics(options), where_of(options)
    for name, given in (
        (TOPIC_ID, where.topic_ids),
        (LOG_START, {one.topic for one in where.log_starts}),
    ):
        _check_read(name, given, topics)
    return ReadOptions(
        topics=topics,
        where=where,
        starting=starting(options, default_start),
        ending=ending(options),
        limits=_limits(options),
        rates=_rates(options),
        columns=columns,
        include_headers=include_headers,
        push_filters=boolean("pushFilters", options.get("pushFilters", "false")),
        warnings=(*idle, *more_warnings),
    )


def _topics(options: Mapping[str, str]) -> Topics:
    given = [name for name in STRATEGIES if name in options]
    if len(given) != 1:
        said = f"given are {', '.join(given)}" if given else "none is given"
        raise OptionError(f"exactly one of {', '.join(STRATEGIES)} must be given; {said}")
    text = options[given[0]]
    if given[0] == "assign":
        return Topics(assigned=partition_lists("assign", text))
    if given[0] == "subscribePattern":
        return Topics(pattern=compile_java_pattern(text))
    subscribed = tuple(sorted(set(names("subscribe", text))))
    if not subscribed:
        raise OptionError("option subscribe names no topic: give one or more, with commas between")
    return Topics(subscribed=subscribed)


def _check_read(option: str, given: Iterable[str], topics: Topics) -> None:
    """Refuse what is said of a topic that is not read: it is a name with a typo."""
    read = sorted({*topics.subscribed, *(one.topic for one in topics.assigned)})
    for name in sorted(given):
        if topics.pattern is not None:
            if topics.pattern.fullmatch(name) is None:
                raise OptionError(
                    f"option {option} names topic {name[:249]!r}, which subscribePattern does not"
                    " match"
                )
        elif name not in read:
            raise OptionError(
                f"option {option} names topic {name[:249]!r}, which is not read: read are"
                f" {', '.join(read[:20])}"
            )


def _limits(options: Mapping[str, str]) -> SplitLimits:
    limits = SplitLimits()
    splits_min, offsets_max = options.get("minPartitions"), options.get("maxRecordsPerPartition")
    target = options.get("targetSplitBytes")
    return SplitLimits(
        target_bytes=limits.target_bytes
        if target is None
        else size_bytes("targetSplitBytes", target),
        splits_min=None
        if splits_min is None
        else whole_number("minPartitions", splits_min, high=_INT32_MAX),
        offsets_max=None
        if offsets_max is None
        else whole_number("maxRecordsPerPartition", offsets_max),
    )


def _rates(options: Mapping[str, str]) -> Rates:
    least, most = options.get("minOffsetsPerTrigger"), options.get("maxOffsetsPerTrigger")
    rates = Rates(
        least=None if least is None else whole_number("minOffsetsPerTrigger", least),
        most=None if most is None else whole_number("maxOffsetsPerTrigger", most),
        delay_ms=duration_ms("maxTriggerDelay", options.get("maxTriggerDelay", _DELAY)),
    )
    if rates.least is not None and rates.most is not None and rates.least > rates.most:
        raise OptionError(
            f"option minOffsetsPerTrigger={rates.least}: is more than"
            f" maxOffsetsPerTrigger={rates.most}"
        )
    return rates


def _ignored(options: Mapping[str, str], some: tuple[str, ...], when: str) -> tuple[str, ...]:
    return tuple(f"option {name} has no effect {when}" for name in some if name in options)
