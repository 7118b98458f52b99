"""What the pipeline knows of a tiered log, of its cluster and of its bucket alone.

The broker is shared by the module; each test has topics of its own.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kafka_protocol.types import TopicPartition
from pipeline.errors import DataLossError
from pipeline.log import TieredLog
from pipeline.opening import open_log
from pipeline.values import (
    ClusterAddress,
    OffsetRange,
    Plan,
    RemotePiece,
    SplitLimits,
    StoreAddress,
    TailPiece,
    Where,
)
from rsm_plugins.segment import SegmentState
from tests.support.brokers.clients import produce
from tests.support.brokers.process import BrokerProcess, running
from tests.support.brokers.tiered_topics import (
    QUICK,
    TIERED,
    create,
    delete_records,
    tiered_away,
    values,
)
from tests.support.lake.partition import LakePartition
from tests.support.lake.placed import placed

COUNT = 2_000
LOCAL_FS = "rsm_plugins.local_fs:LocalFsRemoteStorageManager"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    home = tmp_path_factory.mktemp("tiered")
    yield from running(BrokerProcess(home, tiered=True, settings=QUICK))


def filled(broker: BrokerProcess, topic: str) -> TopicPartition:
    create(broker, topic, **TIERED)
    produce(broker, topic, values(COUNT))
    tiered_away(broker, topic)
    return TopicPartition(topic, 0)


def of_cluster(broker: BrokerProcess, **where: object) -> TieredLog:
    address = ClusterAddress(broker.bootstrap)
    return open_log(Where(cluster=address, **where))  # type: ignore[arg-type]


def of_bucket(directory: Path, **where: object) -> TieredLog:
    address = StoreAddress(LOCAL_FS, {"dir": str(directory)})
    return open_log(Where(store=address, **where))  # type: ignore[arg-type]


def offsets_of(plan: Plan) -> list[int]:
    """All offsets that the pieces hold, in their order; cuts by bytes are counted once."""
    found = []
    for split in plan.splits:
        for piece in split.pieces:
            if isinstance(piece, TailPiece) or piece.byte_from == 0:
                found += range(piece.first, piece.last + 1)
    return found


def test_a_plan_of_all_offsets_takes_the_remote_ones_from_the_store(broker: BrokerProcess) -> None:
    partition = filled(broker, "whole")
    log = of_cluster(broker)
    assert "whole" in log.topics()
    assert log.partitions(["whole"]) == [partition]
    assert log.earliest([partition]) == {partition: 0}
    assert log.latest([partition]) == {partition: COUNT}
    end = log.remote_ends([partition])[partition]
    assert 0 < end < COUNT
    plan = log.plan({partition: OffsetRange(0, COUNT)}, SplitLimits(target_bytes=300_000))
    assert offsets_of(plan) == list(range(COUNT))
    pieces = [piece for split in plan.splits for piece in split.pieces]
    assert all(isinstance(piece, RemotePiece) for piece in pieces if piece.last < end)
    assert min(piece.first for piece in pieces if isinstance(piece, TailPiece)) == end
    assert plan.facts.tail_offsets == COUNT - end
    assert plan.facts.segments_read == plan.facts.segments_known > 1
    log.close()


def test_the_store_is_found_by_asking_a_broker(broker: BrokerProcess) -> None:
    log = of_cluster(broker)
    store = log.source.store
    assert store is not None
    assert store.class_name == LOCAL_FS
    assert Path(store.settings["dir"]) == broker.remote_directory
    assert log.source.cluster_id
    log.close()


def test_the_bucket_alone_has_the_same_remote_offsets(broker: BrokerProcess) -> None:
    partition = filled(broker, "alone")
    cluster = of_cluster(broker)
    bucket = of_bucket(broker.remote_directory)
    end = cluster.remote_ends([partition])[partition]
    assert bucket.partitions(["alone"]) == [partition]
    assert bucket.latest([partition]) == {partition: end}
    assert bucket.earliest([partition]) == {partition: 0}
    wanted = {partition: OffsetRange(0, end)}
    one = cluster.plan(wanted, SplitLimits())
    two = bucket.plan(wanted, SplitLimits())
    assert offsets_of(one) == offsets_of(two) == list(range(end))
    ids = [
        [
            piece.segment.id
            for split in plan.splits
            for piece in split.pieces
            if isinstance(piece, RemotePiece)
        ]
        for plan in (one, two)
    ]
    assert ids[0] == ids[1]
    with pytest.raises(DataLossError, match="at or above the log's end"):
        bucket.plan({partition: OffsetRange(0, end + 1)}, SplitLimits())
    cluster.close()
    bucket.close()


def test_offsets_by_time_are_the_same_of_cluster_and_bucket(broker: BrokerProcess) -> None:
    partition = filled(broker, "timed")
    cluster = of_cluster(broker)
    bucket = of_bucket(broker.remote_directory)
    end = cluster.remote_ends([partition])[partition]
    newest = max(
        piece.segment.max_timestamp_ms
        for split in bucket.plan({partition: OffsetRange(0, end)}, SplitLimits()).splits
        for piece in split.pieces
        if isinstance(piece, RemotePiece)
    )
    for time_ms in (0, newest - 50, newest - 5, newest):
        one = cluster.offsets_at({partition: time_ms})
        assert one[partition] is not None
        assert bucket.offsets_at({partition: time_ms}) == one
    later = newest + 3_600_000
    assert cluster.offsets_at({partition: later}) == {partition: None}
    assert bucket.offsets_at({partition: later}) == {partition: None}
    cluster.close()
    bucket.close()


@pytest.mark.slow
def test_an_open_log_follows_new_segments_a_restart_and_a_raised_log_start(
    broker: BrokerProcess,
) -> None:
    partition = filled(broker, "kept")
    log = of_cluster(broker)
    first = log.plan({partition: OffsetRange(0, COUNT)}, SplitLimits())
    produce(broker, "kept", values(COUNT, COUNT))
    tiered_away(broker, "kept")
    broker.kill()
    broker.start()
    end = log.latest([partition])[partition]
    assert end == 2 * COUNT
    second = log.plan({partition: OffsetRange(0, end)}, SplitLimits())
    assert offsets_of(second) == list(range(end))
    assert second.facts.segments_read > first.facts.segments_read
    cut = 300
    assert delete_records(broker, "kept", cut) == cut
    assert log.earliest([partition]) == {partition: cut}
    with pytest.raises(DataLossError, match="offsets 0 to 299 are below the log start"):
        log.plan({partition: OffsetRange(0, end)}, SplitLimits())
    third = log.plan({partition: OffsetRange(cut, end)}, SplitLimits())
    assert offsets_of(third) == list(range(cut, end))
    log.close()
    skipping = of_cluster(broker, fail_on_data_loss=False)
    plan = skipping.plan({partition: OffsetRange(0, end + 7)}, SplitLimits())
    assert plan.facts.lost_offsets == cut + 7
    assert offsets_of(plan) == list(range(cut, end))
    skipping.close()


def test_what_is_local_alone_needs_no_remote_tier(broker: BrokerProcess) -> None:
    create(broker, "local")
    produce(broker, "local", values(10))
    partition = TopicPartition("local", 0)
    log = of_cluster(broker)
    assert log.remote_ends([partition]) == {partition: 0}
    plan = log.plan({partition: OffsetRange(2, 10)}, SplitLimits(offsets_max=3))
    pieces = [piece for split in plan.splits for piece in split.pieces]
    assert [(piece.first, piece.last) for piece in pieces] == [(2, 4), (5, 7), (8, 9)]
    host, port = broker.bootstrap.rsplit(":", 1)
    for piece in pieces:
        assert isinstance(piece, TailPiece)
        assert piece.leader == (host, int(port))
    log.close()


def an_election_without_a_copy(orders: LakePartition) -> LakePartition:
    orders.batches(4).roll().batches(2).roll().copy()  # to 11, 17
    orders.elect(3, at=15, rolls=[12]).batches(3)
    orders._update(orders.copies[-1], SegmentState.COPY_SEGMENT_FINISHED)  # the barrier
    return orders


@pytest.mark.slow
def test_copies_of_a_former_leader_end_where_the_new_one_began(tmp_path: Path) -> None:
    partition = TopicPartition("orders", 0)
    stories = {"orders": an_election_without_a_copy}
    with placed(tmp_path, stories) as (broker, _), closing(of_cluster(broker)) as log:
        plan = log.plan({partition: OffsetRange(0, 24)}, SplitLimits())
        epochs = [
            log.epochs_before({partition: offset})[partition] for offset in (0, 1, 15, 16, 24, 25)
        ]
    assert epochs == [None, 0, 0, 3, 3, None]
    pieces = [
        (type(piece), piece.first, piece.last) for split in plan.splits for piece in split.pieces
    ]
    assert pieces == [(RemotePiece, 0, 11), (RemotePiece, 12, 14), (TailPiece, 15, 23)]
