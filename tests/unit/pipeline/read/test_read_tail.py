"""The tail by raw Fetch, from a broker that answers what a test chooses."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_client.blocking import ClusterError
from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.control import ControlType, end_transaction_batch
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import TopicIdPartition
from pipeline.columns import TYPES
from pipeline.errors import DamagedDataError, DataLossError
from pipeline.read.groups import ReadLimits
from pipeline.read.lost import LostOffsets
from pipeline.read.split import read_split
from pipeline.read.tail import first_fetch_bytes
from pipeline.store import close_stores
from pipeline.values import ClusterAddress, Isolation, RemotePiece, Source, Split, TailPiece
from tests.support.brokers.scripted_broker import ScriptedBroker, serving
from tests.support.lake.bucket import Bucket
from tests.support.lake.rows import rows_of_arrow

ORDERS = TopicIdPartition(b"o" * 16, 0, "orders")
QUICK = ReadLimits(retry_s=0.3, silence_s=20.0)
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED


def data(first: int, count: int, *, producer: int = -1, size: int = 1) -> bytes:
    records = [(1_000 + n, None, b"%d" % n * size, []) for n in range(first, first + count)]
    is_idempotent = producer >= 0
    return bytes(
        build_batch(
            records,
            base_offset=first,
            leader_epoch=0,
            producer_id=producer,
            producer_epoch=0 if is_idempotent else -1,
            base_sequence=0 if is_idempotent else -1,
            is_transactional=is_idempotent,
        )
    )


def marker(offset: int, producer: int, kind: ControlType = ControlType.ABORT) -> bytes:
    return bytes(
        end_transaction_batch(
            kind,
            base_offset=offset,
            leader_epoch=0,
            timestamp_ms=1_000,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
        )
    )


def broker_of(*batches: bytes) -> ScriptedBroker:
    return ScriptedBroker(ORDERS, list(batches))


def plain() -> ScriptedBroker:
    """Offsets 0 to 49 in batches of 5."""
    return broker_of(*(data(first, 5) for first in range(0, 50, 5)))


def offsets(
    broker: ScriptedBroker,
    first: int,
    last: int,
    isolation: Isolation = UNCOMMITTED,
    *,
    limits: ReadLimits = QUICK,
    lost: LostOffsets | None = None,
    hint: ScriptedBroker | None = None,
) -> Sequence[int]:
    with serving(broker) as bootstrap, serving(hint or plain()):
        source = Source(None, ClusterAddress(bootstrap), "", isolation, lost is None)
        leader = ("127.0.0.1", hint.port) if hint else None
        split = Split(ORDERS.topic_partition, (TailPiece(ORDERS, first, last, leader),), 1)
        batches = read_split(split, source, ("offset",), limits=limits, lost=lost)
        return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def test_offsets_come_once_and_in_order() -> None:
    broker = plain()
    assert offsets(broker, 7, 43) == [*range(7, 44)]
    assert broker.fetched == [7, 20, 35]
    assert broker.looks == 1


def test_a_batch_that_is_cut_is_asked_for_again() -> None:
    broker = plain()
    broker.cut_bytes = 70
    assert offsets(broker, 0, 49) == [*range(50)]


def test_nobody_waits_for_an_offset_that_is_a_marker_or_was_compacted_away() -> None:
    broker = broker_of(data(0, 3, producer=7), marker(3, 7, ControlType.COMMIT), data(9, 2))
    assert offsets(broker, 0, 3, COMMITTED) == [0, 1, 2]
    assert broker.fetched == [0]
    assert offsets(broker, 3, 8, COMMITTED) == []
    assert offsets(broker, 4, 10, COMMITTED) == [9, 10]


def test_aborted_records_are_left_out_up_to_their_marker() -> None:
    broker = broker_of(
        data(0, 2, producer=7),
        data(2, 2, producer=8),
        marker(4, 7),
        data(5, 2, producer=7),
        marker(7, 7, ControlType.COMMIT),
        marker(8, 8),
        data(9, 1),
    )
    broker.aborted = [(7, 0, 4), (8, 2, 8)]
    for batches in (1, 2, 3, 10):
        broker.answer_batches = batches
        assert offsets(broker, 0, 9, COMMITTED) == [5, 6, 9]
        assert offsets(broker, 1, 9, COMMITTED) == [5, 6, 9]
        assert offsets(broker, 0, 9, UNCOMMITTED) == [0, 1, 2, 3, 5, 6, 9]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_a_leader_that_moves_is_looked_for_again(code: int) -> None:
    broker = plain()
    broker.errors = [None, code, code]
    assert offsets(broker, 0, 49, limits=replace(QUICK, retry_s=20.0)) == [*range(50)]
    assert broker.looks == 3


def test_brokers_that_never_answer_end_at_the_deadline_in_one_line() -> None:
    broker = plain()
    broker.errors = [int(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 10_000
    with pytest.raises(ClusterError, match="orders-0: nothing from the brokers for 0 s") as refused:
        offsets(broker, 0, 49)
    assert "NOT_LEADER_OR_FOLLOWER" in str(refused.value)


def test_a_refusal_is_not_tried_again() -> None:
    broker = plain()
    broker.errors = [int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(ClusterError, match="TOPIC_AUTHORIZATION_FAILED"):
        offsets(broker, 0, 49)
    assert len(broker.fetched) == 1


def test_a_topic_that_was_deleted_is_named() -> None:
    broker = plain()
    broker.is_gone = True
    with pytest.raises(DataLossError, match="deleted and made again") as refused:
        offsets(broker, 0, 49)
    assert "offsets 0 to 49" in str(refused.value)


def test_offsets_below_the_log_start_are_data_loss() -> None:
    broker = plain()
    broker.log_start = 20
    with pytest.raises(DataLossError, match="offsets 5 to 19 cannot be read: the log begins at"):
        offsets(broker, 5, 49)


def test_offsets_below_the_log_start_are_counted_where_that_is_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, lost = plain(), LostOffsets()
    broker.log_start = 20
    with caplog.at_level(logging.WARNING, "pipeline.read.lost"):
        assert offsets(broker, 5, 49, lost=lost) == [*range(20, 50)]
    assert lost.count == 15
    assert "lost offsets: topic=orders partition=0 first=5 last=19 count=15" in caplog.text


def test_a_log_that_ends_before_the_plan_is_data_loss_after_the_deadline() -> None:
    with pytest.raises(DataLossError, match="offsets 50 to 59 cannot be read"):
        offsets(plain(), 40, 59)
    with pytest.raises(DataLossError, match="the log ends before offset 70"):
        offsets(plain(), 70, 79)


def test_damaged_batches_of_a_broker_are_named() -> None:
    flipped = bytearray(data(5, 5))
    flipped[70] ^= 1
    broker = broker_of(data(0, 5), bytes(flipped))
    with pytest.raises(DamagedDataError, match=r"broker 127\.0\.0\.1:\d+, orders-0 from offset 0"):
        offsets(broker, 0, 9)


def test_what_a_deleted_segment_held_is_asked_of_the_brokers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another copy, or the leader's disk, may still have it."""
    with Bucket(tmp_path) as bucket:
        orders = bucket.partition("orders")
        right = orders.batches(10, 3).roll().batches(10, 3).roll().copy().rows()
        first, second = bucket.segments()
        orders.delete(0)
        broker = ScriptedBroker(orders.id, [bytes(one) for one in orders.leader.batches()])
        pieces = tuple(
            RemotePiece(one, 4, one.end_offset, 0, one.segment_size_bytes)
            for one in (first, second)
        )
        with serving(broker) as bootstrap:
            source = Source(bucket.address, ClusterAddress(bootstrap), "", UNCOMMITTED, True)
            split = Split(orders.id.topic_partition, pieces, 1)
            found = list(rows_of_arrow(read_split(split, source, tuple(TYPES), limits=QUICK)))
    close_stores()
    assert found == [row for row in right if row.offset >= 4]
    assert broker.fetched[0] == 4
    assert ["is this another store?" in one.message for one in caplog.records] == [True]


def test_a_part_of_a_deleted_segment_is_data_loss_even_with_brokers(tmp_path: Path) -> None:
    """Without its index nobody knows which offsets the part held: rows might come twice."""
    with Bucket(tmp_path) as bucket:
        orders = bucket.partition("orders").batches(10, 3).roll().copy()
        (one,) = bucket.segments()
        orders.delete(0)
        piece = RemotePiece(one, 0, one.end_offset, 300, one.segment_size_bytes)
        with serving(ScriptedBroker(orders.id, [])) as bootstrap:
            source = Source(bucket.address, ClusterAddress(bootstrap), "", UNCOMMITTED, True)
            with pytest.raises(DataLossError, match="was deleted after the plan was made"):
                list(read_split(Split(orders.id.topic_partition, (piece,), 1), source, ("offset",)))
    close_stores()


# ---------------------------------------------------------------------- the leader of the plan


def test_the_leader_that_the_plan_names_is_asked_without_a_look() -> None:
    broker, leader = plain(), plain()
    assert offsets(broker, 7, 43, hint=leader) == [*range(7, 44)]
    assert (broker.looks, broker.connections, broker.fetched) == (0, 0, [])
    assert (leader.looks, leader.connections, leader.fetched) == (0, 1, [7, 20, 35])


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, None]
)
def test_a_named_leader_that_leads_no_more_is_left(code: int | None) -> None:
    broker, leader = plain(), plain()
    leader.errors = [None, int(code)] if code else []
    leader.is_gone = code is None
    assert offsets(broker, 0, 49, hint=leader) == [*range(50)]
    assert broker.looks == 1
    assert len(leader.fetched) == (2 if code else 1)


def test_a_named_leader_that_is_not_there_is_left() -> None:
    away = plain()
    with serving(away):
        pass
    broker = plain()
    with serving(broker) as bootstrap:
        source = Source(None, ClusterAddress(bootstrap), "", UNCOMMITTED, True)
        piece = TailPiece(ORDERS, 0, 49, ("127.0.0.1", away.port))
        batches = read_split(
            Split(ORDERS.topic_partition, (piece,), 1), source, ("offset",), limits=QUICK
        )
        assert sum(batch.num_rows for batch in batches) == 50


@pytest.mark.parametrize("start", [0, 30, 60])
def test_what_a_deposed_leader_says_of_the_logs_bounds_is_no_loss(start: int) -> None:
    """It may lack what the plan saw, or have a log that begins elsewhere."""
    broker, deposed = plain(), plain()
    deposed.batches, deposed.log_start = deposed.batches[:4], start
    assert offsets(broker, 10, 49, hint=deposed) == [*range(10, 50)]
    assert broker.looks == 1


# ---------------------------------------------------------------------- how much is asked for


@pytest.mark.parametrize(
    ("estimate", "asked"),
    [(None, 50 << 20), (0, 64 << 10), (1 << 20, (3 << 19) + (64 << 10)), (1 << 40, 50 << 20)],
)
def test_a_fetch_asks_for_little_more_than_the_piece_holds(
    estimate: int | None, asked: int
) -> None:
    assert first_fetch_bytes(estimate, 50 << 20) == asked


def test_answers_grow_where_the_estimate_is_too_low() -> None:
    broker = broker_of(*(data(first, 5, size=30_000) for first in range(0, 50, 5)))
    limits = replace(QUICK, tail_bytes=500_000)
    assert offsets(broker, 0, 49, limits=limits) == [*range(50)]
    assert broker.fetch_bytes[:4] == [65_537, 131_074, 262_148, 500_000]
    assert set(broker.fetch_bytes[4:]) == {500_000}
