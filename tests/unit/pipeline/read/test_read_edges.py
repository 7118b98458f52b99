"""What a reader does at edges: deletion in the middle of a read, patience, foreign batches."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from kafka_client.blocking import ClusterError
from kafka_protocol.files import offset_index
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.types import EpochEntry, TopicIdPartition, TopicPartition
from pipeline.cluster import cluster
from pipeline.cluster.cluster import NotNowError
from pipeline.columns import TYPES
from pipeline.errors import DamagedDataError, DataLossError, PipelineError
from pipeline.read import split as reading
from pipeline.read.byte_range import is_sound
from pipeline.read.groups import ReadLimits, batch_front
from pipeline.read.leader import Fetched, Leader, TopicDeletedError
from pipeline.read.lost import LossRule, LostOffsets
from pipeline.read.progress import Progress
from pipeline.read.segment_bytes import SegmentBytes
from pipeline.read.split import read_split
from pipeline.read.tail import TailGroups
from pipeline.store import close_stores
from pipeline.values import ClusterAddress, Isolation, RemotePiece, Source, Split, TailPiece
from rsm_plugins.api import RemoteObjectDamagedError, RetriableRemoteStorageError
from tests.support.brokers.scripted_broker import ScriptedBroker, serving
from tests.support.lake.bucket import Bucket
from tests.support.lake.partition import LakePartition
from tests.support.lake.rows import Row, rows_of_arrow
from tests.support.sim.clock import ManualClock
from tests.support.stores.interrupted_store import Interruptions, interrupt

AT = TopicPartition("orders", 0)
QUICK = ReadLimits(group_bytes=500, retry_s=0.3, silence_s=20.0)
UNCOMMITTED = Isolation.READ_UNCOMMITTED


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    """A segment of 40 batches of three records."""
    with Bucket(tmp_path / "bucket") as made:
        made.partition("orders").batches(40, 3).roll().copy()
        yield made
    close_stores()


@pytest.fixture
def orders(bucket: Bucket) -> LakePartition:
    return bucket.partitions[0]


def piece_of(bucket: Bucket, **changes: object) -> RemotePiece:
    (one,) = bucket.segments()
    piece = RemotePiece(one, one.start_offset, one.end_offset, 0, one.segment_size_bytes)
    return replace(piece, **changes)  # type: ignore[arg-type]


def broker_of(orders: LakePartition) -> ScriptedBroker:
    return ScriptedBroker(orders.id, [bytes(one) for one in orders.leader.batches()])


def rows(
    bucket: Bucket,
    piece: RemotePiece,
    how: Interruptions | None = None,
    limits: ReadLimits = QUICK,
) -> list[Row]:
    address = bucket.address if how is None else interrupt(bucket.address, how)
    source = Source(address, None, "", UNCOMMITTED, True)
    split = Split(AT, (piece,), 1)
    return list(rows_of_arrow(read_split(split, source, tuple(TYPES), limits=limits)))


# ---------------------------------------------------------------------- deleted segments


def test_a_segment_deleted_while_it_is_read_gives_each_row_once(
    bucket: Bucket, orders: LakePartition
) -> None:
    """The brokers are asked from the batch on that was not handed out."""
    address = interrupt(bucket.address, Interruptions(break_after=1_800))
    piece, right = piece_of(bucket, last=110), orders.rows()
    broker = broker_of(orders)
    with serving(broker) as bootstrap:
        source = Source(address, ClusterAddress(bootstrap), "", UNCOMMITTED, True)
        batches = read_split(Split(AT, (piece,), 1), source, tuple(TYPES), limits=QUICK)
        first = next(batches)
        orders.delete(0)
        found = list(rows_of_arrow([first, *batches]))
    assert found == right[:111]
    assert broker.fetched[0] > 3


@pytest.mark.parametrize("last", [20, 21])
def test_the_brokers_give_no_row_behind_a_piece(
    bucket: Bucket, orders: LakePartition, last: int
) -> None:
    piece, right = piece_of(bucket, first=4, last=last), orders.rows()
    orders.delete(0)
    with serving(broker_of(orders)) as bootstrap:
        source = Source(bucket.address, ClusterAddress(bootstrap), "", UNCOMMITTED, True)
        batches = read_split(Split(AT, (piece,), 1), source, tuple(TYPES), limits=QUICK)
        assert list(rows_of_arrow(batches)) == right[4 : last + 1]


# ---------------------------------------------------------------------- foreign and wrong batches


def test_an_object_that_looked_damaged_once_is_read_again(
    bucket: Bucket, orders: LakePartition
) -> None:
    how = Interruptions(errors=[RemoteObjectDamagedError("cut by a network")])
    assert rows(bucket, piece_of(bucket), how) == orders.rows()
    assert len(how.fetches) == 2


def test_batches_that_come_again_in_another_group_are_damage(bucket: Bucket) -> None:
    (path,) = Path(bucket.address.settings["dir"]).rglob("*.log")
    data = path.read_bytes()
    ends = [at + header.size_bytes for at, header in iter_batches(data)]
    begin, end = ends[3], ends[7]
    assert ends[7] - ends[3] == ends[11] - ends[7]
    path.write_bytes(data[:end] + data[begin:end] + data[ends[11] :])
    with pytest.raises(DamagedDataError, match=r"batches of offsets 12 to \d+ where 24 to 119"):
        rows(bucket, piece_of(bucket, byte_to=ends[20]), limits=replace(QUICK, group_bytes=1))


def test_batches_of_another_leader_epoch_are_damage(bucket: Bucket) -> None:
    piece = piece_of(bucket)
    other = replace(piece.segment, leader_epochs=(EpochEntry(5, 0),))
    with pytest.raises(DamagedDataError, match="it is of leader epoch 0, the log's is 5"):
        rows(bucket, replace(piece, segment=other))


def test_an_index_that_leads_behind_its_segment_is_of_another(bucket: Bucket) -> None:
    piece = piece_of(bucket)
    for last, sound in ((119, True), (120, False)):
        index = offset_index.pack_entry(last, 500)
        assert is_sound(index, piece) is sound
    assert is_sound(b"", piece)


def test_a_batch_that_compaction_emptied_is_passed(orders: LakePartition) -> None:
    orders.thinned(size=5).append("more")
    empty, more = list(orders.leader.batches())[-2:]
    front = batch_front(bytes(empty) + bytes(more) + bytes(more)[:30])
    assert front == (len(empty) + len(more), 120, 126, 0)


# ---------------------------------------------------------------------- losses


def test_losses_add_up_and_nothing_lost_is_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    lost = LostOffsets()
    with caplog.at_level(logging.WARNING, "pipeline.read.lost"):
        for first, last in ((0, 9), (20, 20), (5, 4)):
            LossRule(False, lost).apply(AT, first, last, "gone")
    assert lost.count == 11
    assert len(lost.reasons) == 2
    LossRule(True, lost).apply(AT, 5, 4, "gone")
    with pytest.raises(DataLossError, match="offsets 5 to 5 cannot be read: gone"):
        LossRule(True, lost).apply(AT, 5, 5, "gone")


def test_all_losses_are_counted_and_the_first_thousand_are_told() -> None:
    lost = LostOffsets()
    for number in range(1_500):
        lost.add(2, f"loss {number}")
    assert (lost.count, lost.losses) == (3_000, 1_500)
    assert lost.reasons == tuple(f"loss {number}" for number in range(1_000))


def test_only_wanted_offsets_below_a_log_start_are_lost(orders: LakePartition) -> None:
    broker, lost = broker_of(orders), LostOffsets()
    broker.log_start = 90
    with serving(broker) as bootstrap:
        source = Source(None, ClusterAddress(bootstrap), "", UNCOMMITTED, False)
        split = Split(AT, (TailPiece(orders.id, 5, 9), TailPiece(orders.id, 88, 90)), 1)
        batches = read_split(split, source, tuple(TYPES), limits=QUICK, lost=lost)
        assert [row.offset for row in rows_of_arrow(batches)] == [90]
    assert lost.count == 5 + 2


def test_for_committed_records_the_log_ends_at_the_last_stable_offset(
    orders: LakePartition,
) -> None:
    broker = broker_of(orders)
    broker.stable = 21
    with serving(broker) as bootstrap:
        source = Source(None, ClusterAddress(bootstrap), "", Isolation.READ_COMMITTED, True)
        split = Split(AT, (TailPiece(orders.id, 15, 29),), 1)
        with pytest.raises(DataLossError, match=r"offsets 21 to 29 .* the log ends at offset 21"):
            list(read_split(split, source, tuple(TYPES), limits=QUICK))


# ---------------------------------------------------------------------- patience


class Hasty(Progress):
    """Pauses move the clock; `begin` and `moved` are as ever."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(self.clock)

    def pause(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1_000) + 1)

    @property
    def waited_s(self) -> float:
        return self.clock.monotonic_ms() / 1_000


class Failing:
    """A leader, or a store, that raises the same for ever."""

    def __init__(self, error: Exception) -> None:
        self.error, self.calls = error, 0

    def fetch(self, _offset: int, _max_bytes: int) -> Fetched:
        self.calls += 1
        raise self.error


@pytest.mark.parametrize(
    ("error", "raised", "low_s", "high_s"),
    [
        (TopicDeletedError("gone"), DataLossError, 0, 10.5),
        (NotNowError("no leader"), ClusterError, 100, 121),
    ],
)
def test_a_topic_that_is_gone_is_waited_for_less_long_than_a_leader(
    orders: LakePartition, error: Exception, raised: type[Exception], low_s: float, high_s: float
) -> None:
    progress, leader = Hasty(), Failing(error)
    began = progress.waited_s
    rule = LossRule(True, LostOffsets())
    groups = TailGroups(
        TailPiece(orders.id, 0, 9), cast("Leader", leader), rule, progress, ReadLimits()
    )
    with pytest.raises(raised):
        list(groups)
    assert low_s <= progress.waited_s - began <= high_s
    assert leader.calls > 2


@pytest.mark.parametrize(
    ("error", "low_s", "high_s"),
    [(RemoteObjectDamagedError("flipped"), 0, 1.1), (RetriableRemoteStorageError("503"), 100, 121)],
)
def test_damage_is_tried_again_less_long_than_a_store_that_fails(
    bucket: Bucket, error: Exception, low_s: float, high_s: float
) -> None:
    progress = Hasty()
    (one,) = bucket.segments()
    segment = SegmentBytes(bucket.store, bucket.address, one, progress, ReadLimits())
    progress.clock.advance(500_000)  # what was before the question does not count
    began = progress.waited_s

    def fail() -> None:
        raise error

    with pytest.raises(PipelineError, match=r"flipped|503"):
        segment.retrying(fail)
    assert low_s <= progress.waited_s - began <= high_s


@pytest.mark.parametrize("client_id", ["me", None])
def test_a_tail_is_read_under_the_users_client_id(
    monkeypatch: pytest.MonkeyPatch, client_id: str | None
) -> None:
    def refuse(bootstrap: str, said: str) -> None:
        raise ClusterError(f"{bootstrap} heard of {said}")

    monkeypatch.setattr(cluster, "BlockingClient", refuse)
    client = {} if client_id is None else {"client.id": client_id}
    source = Source(None, ClusterAddress("h:1", client), "", Isolation.READ_UNCOMMITTED, True)
    piece = TailPiece(TopicIdPartition(bytes(16), 0, "t"), 0, 9)
    rows = reading.read_split(Split(TopicPartition("t", 0), (piece,), 1), source, ("offset",))
    with pytest.raises(ClusterError, match=f"h:1 heard of {client_id or 'tidemark-pipeline'}"):
        next(rows)
