"""`tidemark.scan` and `tidemark cat` beside a broker: its rows, and what happens in between.

The broker is shared by the module; each test has topics of its own.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import tidemark
from pipeline.columns import TYPES
from pipeline.errors import DataLossError, StoreUnreachableError
from pipeline.scan import Scan, plan_scan
from pipeline.scan_options import ScanOptions, where_of
from pipeline.store import close_stores
from pipeline.values import TailPiece
from tests.support.brokers.clients import produce
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import create, delete_records, delete_topic, values
from tests.support.lake.cluster import (
    Filling,
    fill,
    make_topic,
    produce_more,
    settle,
    tiered_cluster,
)
from tests.support.lake.consumer import rows_of_consumer
from tests.support.lake.rows import rows_of_arrow

SMALL = Filling(partitions=2, epochs=1, records=3_000, deleted=0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with tiered_cluster(tmp_path_factory.mktemp("scan")) as running:
        yield running
    close_stores()


def scan(broker: BrokerProcess, topic: str, **options: Any) -> pa.RecordBatchReader:
    return tidemark.scan(topic, bootstrap_servers=broker.bootstrap, **options)


def planned(broker: BrokerProcess, topic: str, **options: Any) -> Scan:
    """Planned, and not read yet."""
    given: ScanOptions = options  # type: ignore[assignment]
    where = where_of(broker.bootstrap, None, topic, given)
    return plan_scan(topic, where, ("earliest", "latest"), ("offset",), given)


def offsets(found: Scan) -> list[int]:
    return [offset for batch in found.batches() for offset in batch.column(0).to_pylist()]


@pytest.mark.smoke
@pytest.mark.slow
def test_rows_are_those_of_a_consumer(broker: BrokerProcess) -> None:
    fill(broker, "rows", Filling(partitions=2, epochs=2, records=1_500, deleted=70))
    columns = list(TYPES)
    expected = list(rows_of_consumer(broker.bootstrap, "rows"))
    assert list(rows_of_arrow(scan(broker, "rows", columns=columns))) == expected
    # a bucket that is named is not asked for
    bucket = f"file://{broker.remote_directory}"
    found = scan(broker, "rows", columns=columns, bucket=bucket, isolation="read_committed")
    assert list(rows_of_arrow(found)) == expected
    # and alone it holds what is remote
    remote = list(rows_of_arrow(tidemark.scan("rows", bucket=bucket, columns=columns)))
    held = {(row.partition, row.offset) for row in remote}
    assert 0 < len(remote) < len(expected)
    # it knows nothing of DeleteRecords
    assert [row for row in remote if row.offset >= 70] == [
        row for row in expected if (row.partition, row.offset) in held
    ]


def test_cat_prints_what_a_cluster_holds(broker: BrokerProcess) -> None:
    create(broker, "printed")
    produce(broker, "printed", values(300))
    arguments = ("--bootstrap-server", broker.bootstrap, "--from=7", "--columns=offset,value")
    done = broker.command("cat", "printed", *arguments)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["offset"] for line in lines] == [*range(7, 300)]
    assert lines[0]["value"] == values(8)[7][1].decode()


def test_a_broker_that_restarts_between_two_answers_gives_each_row_once(
    broker: BrokerProcess,
) -> None:
    create(broker, "restarted")
    produce(broker, "restarted", values(3_000))
    before = planned(broker, "restarted")
    assert all(isinstance(one, TailPiece) for split in before.plan.splits for one in split.pieces)
    broker.terminate()
    broker.start(wait=False)
    assert offsets(before) == [*range(3_000)]
    until(lambda: broker.http("/ready")[0] == 200, "the broker is ready")


def test_records_deleted_after_the_plan_are_an_error_by_name_or_counted(
    broker: BrokerProcess,
) -> None:
    small = Filling(partitions=1, epochs=1, records=5_000, deleted=0)
    make_topic(broker, "shrunk", small)
    produce_more(broker, "shrunk", small, Random(1))
    settle(broker, "shrunk")
    strict, lenient = planned(broker, "shrunk"), planned(broker, "shrunk", fail_on_data_loss=False)
    held = broker.remote_segments("shrunk")
    start = held[len(held) // 2] + 10
    delete_records(broker, "shrunk", start)
    until(lambda: broker.remote_segments("shrunk")[0] > 0, "segments below the start are gone")
    with pytest.raises(DataLossError, match=r"shrunk-0: offsets \d+ to \d+ cannot be read"):
        offsets(strict)
    found = offsets(lenient)
    assert found[-1] == 4_999
    assert found == [*range(found[0], 5_000)]
    assert 0 < found[0] <= start
    assert lenient.lost.count == found[0]


def test_a_topic_made_again_after_the_plan_never_gives_its_new_records(
    broker: BrokerProcess,
) -> None:
    create(broker, "again")
    produce(broker, "again", values(50))
    old = planned(broker, "again")
    delete_topic(broker, "again")
    create(broker, "again")
    produce(broker, "again", values(80))
    with pytest.raises(DataLossError, match="deleted, or deleted and made again"):
        offsets(old)
    assert offsets(planned(broker, "again")) == [*range(80)]


def test_reading_by_broker_continues_while_producers_write(broker: BrokerProcess) -> None:
    make_topic(broker, "busy", SMALL)
    produce_more(broker, "busy", SMALL, Random(2))
    first = planned(broker, "busy")
    produce_more(broker, "busy", SMALL, Random(3))
    assert offsets(first) == [*range(3_000)] * 2
    assert len(offsets(planned(broker, "busy"))) == 12_000


def test_the_store_that_the_broker_names_may_not_be_here(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker, "elsewhere", Filling(partitions=1, epochs=1, records=2_000, deleted=0))
    moved = broker.remote_directory.rename(tmp_path / "moved")
    close_stores()
    try:
        with pytest.raises(StoreUnreachableError, match="cannot be used from host") as refused:
            scan(broker, "elsewhere").read_all()
        assert "\n" not in str(refused.value)
    finally:
        moved.rename(broker.remote_directory)
