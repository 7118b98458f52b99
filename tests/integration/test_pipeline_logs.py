"""What the pipeline knows of a tiered log, of its cluster and of its bucket alone.

The broker is shared by the module; each test has topics of its own.
"""

from collections.abc import Iterator
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
from tests.support.brokers.clients import produce
from tests.support.brokers.process import BrokerProcess, running
from tests.support.brokers.tiered_topics import (
    QUICK,
    TIERED,
    create,
    tiered_away,
    values,
)

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
