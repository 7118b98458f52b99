"""The same Fetch over partitions in both tiers, asked of Apache Kafka and of a broker of ours.

What must be equal: errors, offsets, which partitions get batches, and the bytes of the batches. How
many batches of a remote partition come may differ, see differences-from-kafka.md, but not where the
limits are far below what a reader that has just come is given.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.raw_client import Asked, RawClient, asked_topics, create_topic, produce
from tests.support.differential.common import records
from tests.support.differential.comparison import Side
from tests.support.kafka.peer import KafkaPeer
from tests.support.kafka.tools import require_kafka_tools

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

SMALL, LARGE = "small-batches", "large-batches"
RECORD_BYTES = {SMALL: 20_000, LARGE: 200_000}
REMOTE, LOCAL, EMPTY = (0, 2, 4), (1, 3), 5
FILLED_BYTES = {True: 3_000_000, False: 800_000}
MIB = 1 << 20
ORDERS = ((0, 1, 2, 3, 4, 5), (1, 0, 2, 3, 4, 5), (5, 4, 2, 0), (3, 1), (5, 3, 4, 1), (2,))


@dataclass(frozen=True)
class Got:
    """What one side answered for it; `batches` without one that is cut off."""

    error: int
    offsets: tuple[int, int, int]
    size_bytes: int
    batches: tuple[bytes, ...]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Apache Kafka and ours with the same records, the first two segments of the even partitions
    in the remote tier only."""
    require_kafka_tools()
    directory = tmp_path_factory.mktemp("limits")
    peer = KafkaPeer(directory / "kafka")
    broker = BrokerProcess(directory / "ours", tiered=True)
    both = Side("kafka", peer.port), Side("ours", broker.port)
    try:
        peer.start()
        broker.start()
        for side in both:
            fill(side)
        yield both
    finally:
        for side in both:
            side.close()
        broker.close()
        peer.stop()
    assert "Traceback" not in broker.log_text()


def fill(side: Side) -> None:
    config = {
        "remote_storage_enable": "true",
        "segment_bytes": str(MIB),
        "local_retention_bytes": "1",
    }
    with side.connect() as client:
        for topic, size in RECORD_BYTES.items():
            create_topic(client, topic, 6, **config)
            for partition in (*REMOTE, *LOCAL):
                for first in range(FILLED_BYTES[partition in REMOTE] // size):
                    _append(client, topic, partition, records(1, first=first, size=size))
        for topic, size in RECORD_BYTES.items():
            local_start = 2 * (MIB // len(records(1, size=size)))
            for partition in REMOTE:
                until(
                    lambda p=partition, t=topic, s=local_start: _local_start(client, t, p) == s,  # type: ignore[misc]
                    f"{side.name}: two segments of {topic}-{partition} are remote only",
                )


def _append(client: RawClient, topic: str, partition: int, batch: bytearray) -> None:
    until(
        lambda: produce(client, topic, batch, index=partition).error_code == 0,
        f"{topic}-{partition} takes records",
    )


def _local_start(client: RawClient, topic: str, partition: int) -> int:
    asked = {"name": topic, "partitions": [{"partition_index": partition, "timestamp": -4}]}
    answer = client.ask(ApiKey.LIST_OFFSETS, 9, {"replica_id": -1, "topics": [asked]})
    return int(answer.topics[0].partitions[0].offset)


def fetch(
    side: Side,
    asked: Sequence[Asked],
    max_bytes: int,
    *,
    committed: bool = False,
    wait_ms: int = 5_000,
) -> list[Got]:
    """What was got for each asked partition, in their order."""
    fields = {
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": int(committed),
        "topics": asked_topics(asked),
    }
    with side.connect() as client:
        answer = client.ask(ApiKey.FETCH, 12, fields)
    found = {
        (topic.topic, each.partition_index): each
        for topic in answer.responses
        for each in topic.partitions
    }
    assert len(found) == len(asked)
    return [_got(found[one.topic, one.partition]) for one in asked]


def _got(answer: object) -> Got:
    data = bytes(answer.records or b"")  # type: ignore[attr-defined]
    batches = tuple(data[at : at + head.size_bytes] for at, head in iter_batches(data))
    offsets = (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)  # type: ignore[attr-defined]
    return Got(answer.error_code, offsets, len(data), batches)  # type: ignore[attr-defined]


def same(
    sides: tuple[Side, Side],
    asked: Sequence[Asked],
    max_bytes: int,
    *,
    exactly: bool = False,
    committed: bool = False,
) -> list[Got]:
    """Ask both, twice of ours (cold, then from its caches); returns Kafka's answer."""
    kafka, ours = sides
    theirs = fetch(kafka, asked, max_bytes, committed=committed)
    answers = [theirs]
    for _ in range(2):
        mine = fetch(ours, asked, max_bytes, committed=committed)
        answers.append(mine)
        for one, other in zip(theirs, mine, strict=True):
            assert (one.error, one.offsets) == (other.error, other.offsets)
            assert bool(one.batches) == bool(other.batches)
            shared = min(len(one.batches), len(other.batches))
            assert one.batches[:shared] == other.batches[:shared]
            assert not exactly or one.batches == other.batches
    for answer in answers:
        keeps_limit = sum(one.size_bytes for one in answer) <= max_bytes
        assert keeps_limit or sum(len(one.batches) for one in answer) == 1
    return theirs


@pytest.mark.parametrize("order", ORDERS)
def test_limits_of_the_answer_leave_the_same(
    sides: tuple[Side, Side], order: tuple[int, ...]
) -> None:
    for max_bytes in (1_000, 10_000, 30_000, 100_000):
        same(sides, [Asked(SMALL, p) for p in order], max_bytes, exactly=True)
    for max_bytes in (1_000, 250_000):
        same(sides, [Asked(LARGE, p) for p in order], max_bytes, exactly=True)
    for topic in (SMALL, LARGE):
        for max_bytes in (1_500_000, 10_000_000):
            for committed in (False, True):
                same(sides, [Asked(topic, p) for p in order], max_bytes, committed=committed)


@pytest.mark.parametrize("order", ORDERS)
def test_limits_of_partitions_leave_the_same(
    sides: tuple[Side, Side], order: tuple[int, ...]
) -> None:
    """A batch that is too large for every limit comes once in an answer, from either tier."""
    for topic in (SMALL, LARGE):
        one = same(
            sides, [Asked(topic, p, max_bytes=1_000) for p in order], 10_000_000, exactly=True
        )
        assert sum(len(each.batches) for each in one) == 1
    several = [Asked(SMALL, p, max_bytes=50_000) for p in order]
    for max_bytes in (61_000, 10_000_000):
        same(sides, several, max_bytes, exactly=True)


def test_a_first_batch_that_is_too_large_leaves_their_room_to_the_others(
    sides: tuple[Side, Side],
) -> None:
    for first, second in ((0, 1), (1, 0), (0, 2), (1, 3)):
        asked = [Asked(LARGE, first, max_bytes=1_000), Asked(LARGE, second)]
        assert all(each.batches for each in same(sides, asked, 10_000_000))


def test_a_remote_batch_that_is_too_large_comes_on_top_of_the_limit(
    sides: tuple[Side, Side],
) -> None:
    """Nobody knows its size when the others are given what is left."""
    asked = [Asked(LARGE, 0, max_bytes=1_000), Asked(LARGE, 1)]
    for side in sides:
        answer = fetch(side, asked, 900_000)
        assert 900_000 < sum(one.size_bytes for one in answer) < 1_100_000


def test_errors_beside_remote_partitions(sides: tuple[Side, Side]) -> None:
    asked = [
        Asked(SMALL, 9),
        Asked(SMALL, 1, offset=99_999),
        Asked(SMALL, 0),
        Asked(SMALL, EMPTY, offset=1),
        Asked(SMALL, 3),
    ]
    for order in (asked, asked[::-1]):
        for max_bytes in (100_000, 10_000_000):
            same(sides, order, max_bytes)


def test_places_around_the_ends_of_segments(sides: tuple[Side, Side]) -> None:
    per_segment = MIB // len(records(1, size=RECORD_BYTES[SMALL]))
    for border in (per_segment, 2 * per_segment):
        for offset in range(border - 2, border + 2):
            asked = [Asked(SMALL, 0, offset), Asked(SMALL, 1, 7), Asked(SMALL, 2, offset)]
            for max_bytes in (30_000, 10_000_000):
                same(sides, asked, max_bytes)


def test_who_does_not_wait_gets_remote_records_beside_others(sides: tuple[Side, Side]) -> None:
    for beside in (Asked(SMALL, 1), Asked(SMALL, 9)):
        asked = [beside, Asked(SMALL, 0), Asked(SMALL, 2, offset=20)]
        for side in sides:
            until(
                lambda s=side, a=asked: all(  # type: ignore[misc]
                    one.batches for one in fetch(s, a, 10_000_000, wait_ms=0)[1:]
                ),
                f"{side.name} gives what is remote",
            )


def test_whoever_reads_on_gets_the_same_of_both(sides: tuple[Side, Side]) -> None:
    kafka, ours = (_read_all(side) for side in sides)
    assert kafka == ours


def _read_all(side: Side) -> list[list[bytes]]:
    """All batches of each partition, read with a tight limit and another order each time."""
    ends = [FILLED_BYTES[p in REMOTE] // RECORD_BYTES[SMALL] for p in range(5)]
    found: list[list[bytes]] = [[] for _ in ends]
    for rounds in range(1_000):
        order = [(rounds + p) % len(ends) for p in range(len(ends))]
        asked = [Asked(SMALL, p, len(found[p])) for p in order if len(found[p]) < ends[p]]
        if not asked:
            return found
        for one, got in zip(asked, fetch(side, asked, 150_000), strict=True):
            assert got.error == 0
            found[one.partition] += got.batches
    raise AssertionError(f"{side.name}: not at the end after 1,000 fetches")


# -- what differs, as written down in differences-from-kafka.md


def test_a_limit_of_nothing_passes_remote_partitions_over_in_kafka_only(
    sides: tuple[Side, Side],
) -> None:
    for limit, max_bytes in ((0, 10_000_000), (MIB, 0)):
        asked = [Asked(SMALL, 0, max_bytes=limit), Asked(SMALL, 1, max_bytes=limit)]
        kafka, ours = (fetch(side, asked, max_bytes) for side in sides)
        assert [len(one.batches) for one in kafka] == [0, 1]
        assert [len(one.batches) for one in ours] == [1, 0]


def test_a_negative_limit_is_an_error_of_remote_partitions_here_only(
    sides: tuple[Side, Side],
) -> None:
    asked = [Asked(SMALL, partition, max_bytes=-1) for partition in (0, 1)]
    kafka, ours = (fetch(side, asked, 10_000_000) for side in sides)
    unknown = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [one.error for one in kafka] == [0, unknown]
    assert [one.error for one in ours] == [unknown, unknown]


def test_room_for_more_than_a_mebibyte_is_shared_here_only(sides: tuple[Side, Side]) -> None:
    asked = [Asked(SMALL, partition, max_bytes=2 * MIB) for partition in REMOTE]
    kafka, ours = (fetch(side, asked, 3_000_000) for side in sides)
    assert [bool(one.batches) for one in kafka] == [True, True, False]
    assert all(one.batches for one in ours)


def test_batches_from_the_remote_tier_are_whole_here_only(sides: tuple[Side, Side]) -> None:
    kafka, ours = (fetch(side, [Asked(SMALL, 0)], 30_000)[0] for side in sides)
    assert kafka.size_bytes == 30_000
    assert ours.size_bytes == len(ours.batches[0])
    assert kafka.batches == ours.batches
