"""The values of `start` and `end` of a scan, and the offsets that they mean. Without Arrow."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from kafka_protocol.types import TopicPartition
from pipeline.errors import SKIP_LOST, DataLossError, OptionError
from pipeline.log import TieredLog
from pipeline.values import OffsetRange

EARLIEST, LATEST = "earliest", "latest"
Place = str | int | datetime
"""`earliest`, `latest`, an offset, or a time."""
Places = Place | Mapping[int, Place]
"""One place for all partitions, or one for each number; others take the default."""

_ALLOWED = "'earliest', 'latest', an offset, a datetime with a zone, or {partition: one of these}"


def offset_ranges(
    log: TieredLog, partitions: Iterable[TopicPartition], start: Places, end: Places
) -> dict[TopicPartition, OffsetRange]:
    """The offsets to read of each partition; those of which nothing is to be read are excluded.

    Args:
        log: asked for offsets, once for all partitions and kind of question.
        partitions: of one topic.
        start: inclusive. A time: the first record that is not earlier.
        end: exclusive. A time: up to the first record that is not earlier.

    Raises:
        OptionError: a place is none, is of a partition that is not read, or starts behind its end.
        DataLossError: an offset to start at lies behind the log's end, and that is an error.
    """
    wanted = list(partitions)
    first_places = _of_each("start", start, wanted, EARLIEST)
    end_places = _of_each("end", end, wanted, LATEST)
    starts, ends = _resolve(log, first_places), _resolve(log, end_places)
    for each in wanted:
        if isinstance(first_places[each], int) and starts[each] > ends[each]:
            _check_named(log, each, starts[each], ends[each], end_places[each])
    return {
        each: OffsetRange(starts[each], ends[each]) for each in wanted if starts[each] < ends[each]
    }


def _check_named(
    log: TieredLog, partition: TopicPartition, start: int, end: int, end_place: Place
) -> None:
    """A named offset behind the end: a mistake of the user, or of a log that is not there."""
    if isinstance(end_place, int):
        raise OptionError(f"start={start}: is behind end={end} of {partition}")
    if end_place == LATEST and log.source.fail_on_data_loss:
        raise DataLossError(
            f"{partition}: offset {start:,}, where to start, is behind the log's end {end:,};"
            f" start at or below it, or skip what is lost: {SKIP_LOST}"
        )


def _of_each(
    name: str, places: Places, partitions: list[TopicPartition], default: Place
) -> dict[TopicPartition, Place]:
    if not isinstance(places, Mapping):
        return {each: _checked(name, places) for each in partitions}
    numbers = [each.partition for each in partitions]
    for number in places:
        if number not in numbers:
            shown = ", ".join(map(str, numbers[:20]))
            raise OptionError(
                f"{name}: there is no partition {number!r} to read: there are {shown}"
            )
    return {each: _checked(name, places.get(each.partition, default)) for each in partitions}


def _checked(name: str, place: Place) -> Place:
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise OptionError(f"{name}={place}: a time needs a zone: datetime(..., tzinfo=UTC)")
        return place
    if isinstance(place, str) and place in {EARLIEST, LATEST}:
        return place
    if isinstance(place, int) and not isinstance(place, bool) and place >= 0:
        return place
    raise OptionError(f"{name}={str(place)[:100]!r}: allowed is {_ALLOWED}")


def _resolve(log: TieredLog, places: Mapping[TopicPartition, Place]) -> dict[TopicPartition, int]:
    found = {each: place for each, place in places.items() if isinstance(place, int)}
    asked = {each: place for each, place in places.items() if isinstance(place, datetime)}
    times = {each: _milliseconds(place) for each, place in asked.items()}
    at_times = log.offsets_at(times) if times else {}
    found |= {each: offset for each, offset in at_times.items() if offset is not None}
    # no record is as late as that: nothing is read, or everything up to the end
    late = [each for each in times if each not in found]
    questions: tuple[tuple[str, Callable[..., dict[TopicPartition, int]]], ...] = (
        (EARLIEST, log.earliest),
        (LATEST, log.latest),
    )
    for word, ask in questions:
        wanted = [each for each, place in places.items() if place == word]
        wanted += late if word == LATEST else []
        if wanted:
            found |= ask(wanted)
    return found


def _milliseconds(at: datetime) -> int:
    """Rounded up: a record of the millisecond in which `at` lies is earlier than `at`."""
    return -(-int(at.timestamp() * 1_000_000) // 1_000)
