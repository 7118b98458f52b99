"""Reads single values of options: each returns the value or names option, value and what is right.

Must not know: what an option is for; Spark. Only for values that may be shown.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from kafka_protocol.types import TopicPartition
from pipeline.errors import OptionError

Offsets = dict[TopicPartition, int]

_SHOWN_CHARS: Final = 200
_INT64_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 18
"""Python itself refuses numbers of thousands of digits."""
_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE | re.ASCII)
_SIZE_SHIFT: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_TIME: Final = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE | re.ASCII)
_TIME_US: Final = {
    "us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "min": 60_000_000,
    "h": 3_600_000_000, "d": 86_400_000_000,
}  # fmt: skip


def boolean(name: str, text: str) -> bool:
    """`true` or `false`, in any case."""
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise _wrong(name, text, "must be true or false")
    return found


def whole_number(name: str, text: str, low: int = 1, high: int = _INT64_MAX) -> int:
    """A number in `[low, high]`."""
    stripped = text.strip()
    if not re.fullmatch(r"[+-]?\d{1,19}", stripped, re.ASCII) or not low <= int(stripped) <= high:
        raise _wrong(name, text, f"must be a whole number from {low} to {high}")
    return int(stripped)


def size_bytes(name: str, text: str) -> int:
    """A number of bytes as Spark writes it: `134217728`, `128m`, `1g`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or len(found[1]) > _DIGITS_MAX or int(found[1]) == 0:
        raise _wrong(name, text, "must be a size, for example 128m")
    return int(found[1]) << _SIZE_SHIFT[found[2].lower()]


def duration_ms(name: str, text: str) -> int:
    """A time as Spark writes it: `15m`, `30s`; milliseconds without a unit."""
    found = _TIME.fullmatch(text.strip())
    if found is None or len(found[1]) > _DIGITS_MAX:
        raise _wrong(name, text, "must be a time, for example 15m")
    return int(found[1]) * _TIME_US[(found[2] or "ms").lower()] // 1000


def one_of(name: str, text: str, allowed: Mapping[str, Any]) -> Any:
    """The member of `allowed` for the text, in any case."""
    found = allowed.get(text.strip().lower())
    if found is None:
        raise _wrong(name, text, f"must be one of {', '.join(allowed)}")
    return found


def names(name: str, text: str) -> tuple[str, ...]:
    """Names with commas between; empty ones are excluded."""
    return tuple(one.strip() for one in text.split(",") if one.strip())


def partition_lists(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Reads `{"topicA":[0,1]}`; sorted."""
    example = '{"topicA":[0,1],"topicB":[0,1]}'
    found: list[TopicPartition] = []
    for topic, listed in _json_map(name, text, example).items():
        if not isinstance(listed, list) or not all(_is_int(one) and one >= 0 for one in listed):
            raise _wrong(name, text, f"expected e.g. {example}")
        found += [TopicPartition(topic, one) for one in listed]
    if not found or len(set(found)) != len(found):
        raise _wrong(name, text, "must name at least one partition, and none twice")
    return tuple(sorted(found))


def partition_numbers(name: str, text: str, low: int) -> dict[TopicPartition, int]:
    """Reads `{"topicA":{"0":23}}`; each number at least `low`."""
    example = '{"topicA":{"0":23,"1":42},"topicB":{"0":7}}'
    found: dict[TopicPartition, int] = {}
    for topic, listed in _json_map(name, text, example).items():
        if not isinstance(listed, dict):
            raise _wrong(name, text, f"expected e.g. {example}")
        for key, number in listed.items():
            if not re.fullmatch(r"\d{1,10}", key, re.ASCII) or not _is_int(number):
                raise _wrong(name, text, f"expected e.g. {example}")
            if number < low:
                raise _wrong(name, text, f"{topic}-{key} must be at least {low}")
            if number > _INT64_MAX:
                raise _wrong(name, text, f"{topic}-{key} must be at most {_INT64_MAX}")
            partition = TopicPartition(topic, int(key))
            if partition in found:
                raise _wrong(name, text, f"{partition} is given twice")
            found[partition] = number
    return found


def topic_texts(name: str, text: str) -> dict[str, str]:
    """Reads `{"topicA":"text"}`."""
    example = '{"topicA":"7sK3p4vJTvGVtdOg4xMkXw"}'
    found = _json_map(name, text, example)
    if not all(isinstance(one, str) for one in found.values()):
        raise _wrong(name, text, f"expected e.g. {example}")
    return found


def _json_map(name: str, text: str, example: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise _wrong(name, text, "a key is given twice")
        return found

    try:
        found = json.loads(text, object_pairs_hook=unique)
    except OptionError:
        raise
    except (ValueError, RecursionError):  # no JSON, or a number of thousands of digits
        found = None
    if not isinstance(found, dict):
        raise _wrong(name, text, f"expected e.g. {example}")
    return found


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(name: str, text: str, why: str) -> OptionError:
    shown = " ".join(text.split())
    if len(shown) > _SHOWN_CHARS:
        shown = shown[:_SHOWN_CHARS] + " ..."
    return OptionError(f"option {name}={shown}: {why}")


def to_map(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The offsets as Spark takes them."""
    found: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found


def from_map(said: Mapping[str, object]) -> Offsets:
    """Offsets that Spark read from a checkpoint.

    Raises:
        OptionError: this is not the checkpoint of a Kafka source.
    """
    try:
        return partition_numbers("checkpoint", json.dumps(said), 0)
    except OptionError as error:
        raise OptionError(
            f"the checkpoint holds no offsets of this source: {error}; give another"
            " checkpointLocation"
        ) from None
