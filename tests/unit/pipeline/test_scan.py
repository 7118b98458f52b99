"""`tidemark.scan` on generated buckets: ranges, columns, errors, and who reads what it gives."""

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import tidemark
from pipeline import errors
from pipeline.columns import DEFAULT_COLUMNS, schema_of
from pipeline.errors import DataLossError, MissingPackageError, OptionError
from pipeline.scan_options import ScanOptions, where_of
from pipeline.store import close_stores
from pipeline.truth import cluster_log
from pipeline.values import Isolation
from tests.support.lake.bucket import Bucket
from tests.support.lake.rows import Row, rows_of_arrow
from tidemark.errors import TidemarkError

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN_MS = int(BEGIN.timestamp() * 1_000)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """`orders`: partition 0 has offsets 0 to 99, one a minute; 1 has 0 to 29 of transactions."""
    with Bucket(tmp_path_factory.mktemp("scan") / "bucket") as made:
        orders = made.partition("orders")
        for offset in range(100):
            at_ms = BEGIN_MS + offset * 60_000
            orders.append((at_ms, b"key", b"value of %d" % offset, []), codec=offset % 5)
            if offset % 40 == 39:
                orders.roll()
        orders.roll().copy()
        others = made.partition("orders", 1)
        others.batches(3, 3, producer_id=7, transactional=True).abort(7)
        others.batches(3, 3, producer_id=7, transactional=True).commit(7)
        others.batches(5, 2).roll().copy()
        yield made
    close_stores()


def scan(bucket: Bucket, **options: Any) -> pa.RecordBatchReader:
    return tidemark.scan("orders", bucket=bucket.address.settings["dir"], **options)


def offsets(bucket: Bucket, **options: Any) -> dict[int, list[int]]:
    """Offsets by partition."""
    found: dict[int, list[int]] = {}
    for batch in scan(bucket, columns=["partition", "offset"], **options):
        for partition, offset in zip(*(one.to_pylist() for one in batch), strict=True):
            found.setdefault(partition, []).append(offset)
    return found


def test_a_scan_gives_the_rows_of_the_log(bucket: Bucket) -> None:
    reader = scan(bucket, columns=[*DEFAULT_COLUMNS, "headers"])
    assert list(rows_of_arrow(reader)) == bucket.rows()
    assert scan(bucket).schema == schema_of(DEFAULT_COLUMNS)


def test_a_bucket_may_be_a_path(bucket: Bucket) -> None:
    place = Path(bucket.address.settings["dir"])
    assert tidemark.scan("orders", bucket=place, partitions=[0]).read_all().num_rows == 100


@pytest.mark.parametrize(
    "options",
    [{"isolation": "read_committed"}, {"client": {"Isolation.Level": "READ_COMMITTED"}}],
)
def test_committed_rows_alone(bucket: Bucket, options: dict[str, Any]) -> None:
    reader = scan(bucket, **options)
    found: list[Row] = list(rows_of_arrow(reader))
    assert found == bucket.rows(Isolation.READ_COMMITTED)
    assert len(found) < len(bucket.rows())


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (95, "latest", {0: [*range(95, 100)]}),
        ({0: 98, 1: 28}, "latest", {0: [98, 99], 1: [28, 29]}),
        ({0: 98}, {1: 2}, {0: [98, 99], 1: [0, 1]}),
        ("earliest", {0: 3, 1: 0}, {0: [0, 1, 2]}),
        ("latest", "latest", {}),
        (50, 50, {}),
    ],
)
def test_offsets_say_where_to_begin_and_to_end(
    bucket: Bucket, start: Any, end: Any, wanted: dict[int, list[int]]
) -> None:
    partitions = [0] if start == 95 else [0, 1]
    assert offsets(bucket, start=start, end=end, partitions=partitions) == wanted


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [(101, "latest", []), ({0: 200}, "latest", []), (98, 120, [98, 99])],
)
def test_offsets_behind_the_log_are_lost_by_name(
    bucket: Bucket, start: Any, end: Any, left: list[int]
) -> None:
    where = {"start": start, "end": end, "partitions": [0]}
    with pytest.raises(DataLossError, match=r"^orders-0: .*fail_on_data_loss=False.*--skip-lost"):
        scan(bucket, **where)
    assert offsets(bucket, **where, fail_on_data_loss=False).get(0, []) == left


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (timedelta(minutes=97), timedelta(minutes=99), [97, 98]),
        (timedelta(minutes=97, seconds=1), timedelta(minutes=99, microseconds=1), [98, 99]),
        (timedelta(days=9), timedelta(days=10), []),
        (timedelta(minutes=98), timedelta(days=10), [98, 99]),
    ],
)
def test_times_say_where_to_begin_and_to_end(
    bucket: Bucket, start: timedelta, end: timedelta, wanted: list[int]
) -> None:
    found = offsets(bucket, start=BEGIN + start, end=BEGIN + end, partitions=[0])
    assert found.get(0, []) == wanted


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": datetime(2026, 1, 1)}, "a time needs a zone"),  # noqa: DTZ001 - that is the test
        ({"start": "begin"}, "allowed is 'earliest'"),
        ({"start": -1}, "allowed is 'earliest'"),
        ({"end": True}, "allowed is 'earliest'"),
        ({"start": {2: 0}}, "there is no partition 2 to read: there are 0, 1"),
        ({"start": 60, "end": 50}, "start=60: is behind end=50 of orders-0"),
        ({"partitions": [5]}, "there is no partition 5"),
        ({"partitions": 0}, "partitions=0: give a list of numbers"),
        ({"columns": []}, "columns=[]: give a list of one or more names"),
        ({"columns": "offset"}, "columns='offset': give a list"),
        ({"log_start": {"0": 5}}, "log_start={'0': 5}: allowed is {partition: offset}"),
        ({"log_start": {0: -1}}, "both numbers from 0 on"),
        ({"log_start": {7: 5}}, "a log start is given for orders-7: the bucket has nothing of"),
        ({"columns": ["values"]}, "there is no column 'values'"),
        ({"isolation": "serialisable"}, "read_uncommitted or read_committed"),
        ({"isolatoin": "read_committed"}, "did you mean isolation?"),
        ({"topic_id": "short"}, "22 characters"),
        ({"topic_id": 5}, "topic_id is of type int: allowed are the 22 characters of an id"),
        ({"isolation": 1}, "isolation is of type int: allowed is read_uncommitted or read_comm"),
        ({"fail_on_data_loss": "false"}, "fail_on_data_loss is of type str: allowed is True"),
        ({"storage": "x"}, "storage is of type str: allowed is a mapping"),
        ({"batch_bytes": 0}, "batch_bytes=0: allowed is a number from 1 on"),
        ({"batch_bytes": True}, "batch_bytes is of type bool"),
        (
            {"client": {"secruity.protocol": "SSL"}},
            "there is no client setting secruity.protocol; did you mean security.protocol?",
        ),
        ({"client": {"auto.offset.reset": "latest"}}, "or start of a scan"),
        ({"client": {"bootstrap.servers": "h:1"}}, "brokers are named by bootstrap_servers"),
        (
            {"client": {"isolation.level": "read_committed"}, "isolation": "read_uncommitted"},
            "isolation=read_uncommitted contradicts the client setting isolation.level=read_comm",
        ),
        ({"client": {"isolation.level": "serialisable"}}, "read_uncommitted or read_committed"),
    ],
)
def test_wrong_options_are_one_line_each(
    bucket: Bucket, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(OptionError) as refused:
        scan(bucket, **options)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_none_is_the_default_of_every_option(bucket: Bucket) -> None:
    options = dict.fromkeys(ScanOptions.__annotations__)
    assert scan(bucket, **options).read_all().num_rows == 128


def test_nothing_says_where_the_log_is() -> None:
    with pytest.raises(OptionError, match="say where the log is"):
        tidemark.scan("orders")
    with pytest.raises(OptionError, match="storage settings need a store"):
        tidemark.scan("orders", bootstrap_servers="h:1", storage={"region": "x"})
    with pytest.raises(OptionError, match="log_start is for a bucket that is read alone"):
        tidemark.scan("orders", bootstrap_servers="h:1", log_start={0: 1})


def test_client_settings_are_kept_or_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    given = {"client.id": "me", "group.id": "g", "ssl.key.location": "hush", "check.crcs": "true"}
    where = where_of("h:1", None, "t", {"client": {**given, "bootstrap.servers": "h:1"}})
    assert where.cluster is not None
    assert where.cluster.client == {"client.id": "me", "ssl.key.location": "hush"}
    assert where.cluster.client_id == "me"
    assert [one.getMessage() for one in caplog.records] == [
        "client setting group.id has no effect: no group is joined",
        "client setting check.crcs has no effect: there is no consumer",
    ]


def test_a_broker_that_is_away_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_log, "_FIRST_POLL_S", 0)
    with pytest.raises(TidemarkError) as refused:
        tidemark.scan("orders", bootstrap_servers="127.0.0.1:1")
    assert str(refused.value) == (
        f"no broker answers host {socket.gethostname()}: 127.0.0.1:1: Connection refused; see"
        " whether the bootstrap servers are right and run"
    )
    with pytest.raises(TidemarkError, match=r"^bootstrap server 'broker': must be host:port$"):
        tidemark.scan("orders", bootstrap_servers="broker")


def test_a_topic_that_is_not_there_is_named(bucket: Bucket) -> None:
    with pytest.raises(TidemarkError, match="ordres"):
        tidemark.scan("ordres", bucket=bucket.address.settings["dir"])


def test_dropping_the_reader_early_ends_its_thread(bucket: Bucket) -> None:
    before = threading.active_count()
    reader = scan(bucket)
    reader.read_next_batch()
    del reader
    assert threading.active_count() == before


def test_without_pyarrow_one_line_says_what_to_install(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name == "pyarrow" else name)
    with pytest.raises(MissingPackageError) as refused:
        scan(bucket)
    assert str(refused.value) == (
        "pyarrow is not installed here: pip install 'DIRECTORY-OF-THE-CLONE[arrow]'"
    )
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match="pyarrow and numpy are not installed here"):
        errors.need("arrow", "pyarrow", "numpy")


# ------------------------------------------------------------------ who reads it


def test_polars_reads_it(bucket: Bucket) -> None:
    frame = pl.from_arrow(scan(bucket, columns=["partition", "offset"]))
    assert isinstance(frame, pl.DataFrame)
    counts = frame.group_by("partition").len().sort("partition")
    assert counts.rows() == [(0, 100), (1, 28)]


def test_duckdb_reads_it(bucket: Bucket) -> None:
    import duckdb

    reader = scan(bucket, columns=["partition", "value"])
    with duckdb.connect() as connection:
        connection.register("orders", reader)
        found = connection.sql(
            "select partition, count(*), min(decode(value)) from orders group by 1 order by 1"
        ).fetchall()
    assert found == [(0, 100, "value of 0"), (1, 28, "value of 0")]


def test_pandas_reads_it(bucket: Bucket) -> None:
    frame = scan(bucket, start=97, partitions=[0]).read_pandas()
    assert frame["value"].tolist() == [b"value of 97", b"value of 98", b"value of 99"]
    assert str(frame["timestamp"].dtype) == "datetime64[us, UTC]"
