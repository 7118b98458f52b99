"""A bucket alone at its edges: lineages that fork, copies that go, times and ends that just fit."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.types import EpochEntry, TopicIdPartition, TopicPartition
from pipeline.errors import DamagedDataError, OptionError, StoreUnreachableError
from pipeline.read.split import read_split
from pipeline.store import close_stores
from pipeline.truth.bucket_copies import BucketCopies
from pipeline.truth.bucket_lineage import chain_of, contradicting, furthest
from pipeline.truth.bucket_log import BucketLog
from pipeline.values import Isolation, OffsetRange, SplitLimits, Where
from rsm_plugins.layout.objects import dump_manifest, parse_manifest
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata
from tests.support.lake.bucket import Bucket, topic_id_of
from tests.support.sim.clock import ManualClock

ORDERS = TopicPartition("orders", 0)
HOME = TopicIdPartition(b"o" * 16, 0, "orders")
COMMITTED = Isolation.READ_COMMITTED


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    """Three segments of nine offsets each."""
    with Bucket(tmp_path) as made:
        made.partition("orders").batches(3).roll().batches(3).roll().batches(3).roll().copy()
        yield made


def opened(bucket: Bucket, clock: ManualClock | None = None, **where: Any) -> BucketLog:
    return BucketLog(Where(store=bucket.address, **where), bucket.address, clock or ManualClock())


def objects(bucket: Bucket, suffix: str) -> list[Path]:
    """Objects of that kind, ascending by offset."""
    found = Path(bucket.address.settings["dir"]).rglob(f"*{suffix}")
    return sorted(found, key=lambda path: path.name)


def lie(path: Path, **changes: object) -> None:
    manifest = parse_manifest(path.read_bytes())
    metadata = replace(manifest.metadata, **changes)  # type: ignore[arg-type]
    path.write_bytes(dump_manifest(replace(manifest, metadata=metadata)))


def copy(
    first: int, last: int, *epochs: tuple[int, int], number: int = 1
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(HOME, bytes([number]) * 16),
        start_offset=first,
        end_offset=last,
        max_timestamp_ms=0,
        broker_id=1,
        event_timestamp_ms=0,
        segment_size_bytes=100,
        leader_epochs=tuple(EpochEntry(*one) for one in epochs),
    )


def chain(*epochs: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(*one) for one in epochs]


# ---------------------------------------------------------------------- topics


def test_of_two_topics_of_one_name_one_must_be_chosen(bucket: Bucket) -> None:
    bucket.partition("orders", life=1).batches(2).roll().copy()
    with closing(opened(bucket)) as log, pytest.raises(OptionError, match="2 topics named orders"):
        log.latest([ORDERS])
    for life, end in ((0, 27), (1, 6)):
        with closing(opened(bucket, topic_ids={"orders": topic_id_of("orders", life)})) as log:
            assert log.latest([ORDERS]) == {ORDERS: end}


def test_an_id_for_a_topic_of_which_there_is_nothing_is_refused(bucket: Bucket) -> None:
    with (
        closing(opened(bucket, topic_ids={"ghost": topic_id_of("ghost")})) as log,
        pytest.raises(OptionError, match="it has none of the name"),
    ):
        log.partitions(["ghost"])


# ---------------------------------------------------------------------- copies


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
def test_an_object_that_is_longer_than_its_manifest_says_is_no_copy(
    bucket: Bucket, suffix: str
) -> None:
    path = objects(bucket, suffix)[1]
    path.write_bytes(path.read_bytes() + b"x")
    with (
        closing(opened(bucket)) as log,
        pytest.raises(DamagedDataError, match=rf"its \{suffix} object has \d+ bytes"),
    ):
        log.latest([ORDERS])


@pytest.mark.parametrize(
    ("epochs", "said"),
    [
        (chain((0, 9), (0, 12)), "not a chain"),
        (chain((1, 9), (0, 12)), "not a chain"),
        (chain((0, 12), (1, 9)), "not a chain"),
        (chain((0, 18)), "beyond its end"),
        (chain((0, 9), (1, 18)), "beyond its end"),
    ],
)
def test_leader_epochs_that_cannot_be_are_named(
    bucket: Bucket, epochs: list[EpochEntry], said: str
) -> None:
    lie(objects(bucket, ".manifest")[1], leader_epochs=tuple(epochs))
    with closing(opened(bucket)) as log, pytest.raises(DamagedDataError, match=said):
        log.latest([ORDERS])


def test_a_copy_that_goes_is_missed_after_a_while(bucket: Bucket) -> None:
    clock = ManualClock()
    with closing(opened(bucket, clock)) as log:
        assert log.latest([ORDERS]) == {ORDERS: 27}
        objects(bucket, ".manifest")[2].unlink()
        clock.advance(31_000)
        assert log.latest([ORDERS]) == {ORDERS: 18}


def test_a_segment_copied_with_a_log_start_in_it_is_read_from_there(
    tmp_path: Path,
) -> None:
    """Its leader epochs begin at that log start: below it nothing is known."""
    with Bucket(tmp_path) as bucket:
        orders = bucket.partition("orders").batches(3).roll().lead(2).batches(3).roll()
        orders.delete_records(13).batches(3).roll().copy()
        first = bucket.segments()[0]
        assert (first.start_offset, first.leader_epochs) == (9, (EpochEntry(2, 13),))
        with closing(opened(bucket)) as log:
            assert log.earliest([ORDERS]) == {ORDERS: 13}
            assert log.latest([ORDERS]) == {ORDERS: 27}
            plan = log.plan({ORDERS: OffsetRange(13, 27)}, SplitLimits())
            (split,) = plan.splits
            batches = list(read_split(split, log.source, ("offset",)))
    close_stores()
    assert [at for one in batches for at in one.column(0).to_pylist()] == [*range(13, 27)]


# ---------------------------------------------------------------------- lineages


def test_a_newer_leader_that_reaches_less_far_is_the_one_that_counts(bucket: Bucket) -> None:
    bucket.partitions[0].elect(2, at=9).batches(2).roll().copy()
    with closing(opened(bucket)) as log:
        assert log.latest([ORDERS]) == {ORDERS: 15}


def test_the_furthest_copy_is_of_the_newest_epoch_then_the_highest_end() -> None:
    old, short = copy(0, 99, (1, 0), number=9), copy(0, 9, (1, 0), (2, 5), number=8)
    far, again = copy(10, 19, (2, 10), number=1), copy(12, 19, (2, 12), number=2)
    assert furthest([old, short, far, again]) is again
    assert furthest([old, short]) is short
    assert furthest([]) is None


@pytest.mark.parametrize(
    ("held", "epochs", "fits"),
    [
        (copy(9, 17, (0, 9), (2, 12)), chain((0, 0), (2, 12)), True),
        (copy(9, 17, (0, 9)), chain((0, 9)), True),
        (copy(9, 17, (0, 9), (2, 12)), chain((0, 0), (2, 11)), False),
        (copy(9, 17, (0, 9), (2, 12)), chain((0, 0), (2, 13)), False),
        (copy(9, 17, (0, 9), (2, 12)), chain((2, 12)), False),
        (copy(12, 17, (2, 12)), chain((2, 13)), False),
        (copy(9, 17, (0, 9)), chain((1, 0), (0, 5)), False),
        (copy(9, 17, (0, 9)), chain((0, 3), (1, 3)), False),
    ],
)
def test_the_index_of_a_copy_is_a_chain_that_fits_its_manifest(
    held: RemoteLogSegmentMetadata, epochs: list[EpochEntry], fits: bool
) -> None:
    index = epoch_checkpoint.dump(epochs)
    if fits:
        assert chain_of(held, index, "here") == epochs
    else:
        with pytest.raises(DamagedDataError, match="here: its leader-epoch index"):
            chain_of(held, index, "here")


@pytest.mark.parametrize(
    ("held", "contradicts"),
    [
        (copy(0, 9, (0, 0), (2, 5)), False),
        (copy(7, 9, (2, 7)), False),  # begins within an epoch of the chain
        (copy(0, 9, (0, 0), (1, 4)), False),  # an epoch of another lineage
        (copy(0, 9, (0, 0), (2, 6)), True),
        (copy(0, 9, (0, 0), (2, 4)), True),
        (copy(4, 9, (2, 4)), True),
        (copy(0, 9, (0, 0), (1, 4), (2, 6)), True),
    ],
)
def test_no_lineage_begins_an_epoch_elsewhere(
    held: RemoteLogSegmentMetadata, contradicts: bool
) -> None:
    assert contradicting([held], chain((0, 0), (2, 5))) == ([held] if contradicts else [])


# ---------------------------------------------------------------------- ends and times


def test_a_log_start_above_the_end_is_an_empty_log(bucket: Bucket) -> None:
    with closing(opened(bucket, log_starts={ORDERS: 30})) as log:
        assert log.earliest([ORDERS]) == log.latest([ORDERS]) == {ORDERS: 30}


def test_a_log_whose_bucket_cannot_be_listed_is_closed(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: BucketCopies) -> None:
        raise StoreUnreachableError("not now")

    closed: list[BucketLog] = []

    def remember(log: BucketLog) -> None:
        closed.append(log)

    monkeypatch.setattr(BucketCopies, "refresh", fail)
    monkeypatch.setattr(BucketLog, "close", remember)
    with pytest.raises(StoreUnreachableError):
        opened(bucket)
    (log,) = closed
    monkeypatch.undo()
    log.close()


@pytest.mark.parametrize(
    ("name", "number", "there"),
    [("orders", 7, "it has 0 of the topic"), ("Orders", 0, "no topic 'Orders', it has orders")],
)
def test_a_log_start_of_what_is_not_there_is_refused(
    bucket: Bucket, name: str, number: int, there: str
) -> None:
    with (
        closing(opened(bucket, log_starts={TopicPartition(name, number): 5})) as log,
        pytest.raises(OptionError, match=f"a log start is given for {name}-{number}: .*{there}"),
    ):
        log.partitions(["orders"])


@pytest.mark.parametrize("start", [4, 8, 9])
def test_no_time_leads_below_the_log_start(bucket: Bucket, start: int) -> None:
    with closing(opened(bucket, log_starts={ORDERS: start})) as log:
        assert log.offsets_at({ORDERS: 0}) == {ORDERS: start}


def test_a_time_that_only_undecided_records_or_markers_have_is_not_reached(tmp_path: Path) -> None:
    def stamped(time_ms: int) -> tuple[int, bytes | None, bytes, list[tuple[str, bytes]]]:
        return time_ms, None, b"value", []

    with Bucket(tmp_path) as bucket:
        orders = bucket.partition("orders")
        orders.append(stamped(10)).append(stamped(20), producer_id=3, transactional=True).commit(3)
        orders.append(stamped(15)).append(stamped(30), producer_id=4, transactional=True).roll()
        orders.copy()
        with closing(opened(bucket, isolation=COMMITTED)) as log:
            assert log.latest([ORDERS]) == {ORDERS: 4}
            assert log.offsets_at({ORDERS: 20}) == {ORDERS: 1}
            assert log.offsets_at({ORDERS: 21}) == {ORDERS: None}
        with closing(opened(bucket)) as log:
            assert log.offsets_at({ORDERS: 21}) == {ORDERS: 4}
            assert log.offsets_at({ORDERS: 31}) == {ORDERS: None}


def test_a_time_is_found_in_a_batch_that_is_larger_than_a_read(tmp_path: Path) -> None:
    with Bucket(tmp_path) as bucket:
        large = b"x" * (3 << 19)
        orders = bucket.partition("orders").append((10, None, large, []), (20, None, b"b", []))
        orders.roll().copy()
        with closing(opened(bucket)) as log:
            assert log.offsets_at({ORDERS: 15}) == {ORDERS: 1}
