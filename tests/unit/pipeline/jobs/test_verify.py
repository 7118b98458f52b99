"""A verification where the source gives other rows than the consumer."""

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pipeline.columns import schema_of
from pipeline.jobs import verify as verifying
from pipeline.jobs.record_hash import Digest, digests_of_batches
from pipeline.jobs.verify import VerifyOptions, verify
from pipeline.jobs.write_task import COLUMNS
from pipeline.values import OffsetRange
from tidemark.commands import pipeline_verify


def rows(partition: int, *offsets: int, value: bytes = b"v") -> list[dict[str, Any]]:
    return [
        {
            "key": b"k", "value": value, "topic": "t", "partition": partition, "offset": offset,
            "timestamp": 0, "timestampType": 0, "headers": None,
        }
        for offset in offsets
    ]  # fmt: skip


def batch(found: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(found, schema=schema_of(COLUMNS))


class SourceSpark:
    """A session whose source gives these rows."""

    def __init__(self, found: Iterable[pa.RecordBatch]) -> None:
        self._batches = list(found)
        self.given = dict[str, str]()

    @property
    def read(self) -> "SourceSpark":
        return self

    @property
    def sparkContext(self) -> "SourceSpark":
        return self

    def setJobDescription(self, _text: str | None) -> None: ...

    def format(self, _name: str) -> "SourceSpark":
        return self

    def options(self, **given: str) -> "SourceSpark":
        self.given = given
        return self

    def load(self) -> "SourceSpark":
        return self

    def mapInArrow(
        self, function: Callable[[Iterator[Any]], Iterator[pa.RecordBatch]], _schema: str
    ) -> "SourceSpark":
        return SourceSpark([out for one in self._batches for out in function(iter([one]))])

    def collect(self) -> list[Any]:
        return [SimpleNamespace(**row) for one in self._batches for row in one.to_pylist()]


def test_missing_and_changed_rows_are_reported_by_partition(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    consumed = [*rows(0, 0, 1, 2), *rows(1, 0, 1, 2), *rows(2, 0, 1, 2), *rows(3, 0)]
    digests = digests_of_batches([batch(consumed)])
    monkeypatch.setattr(verifying, "run_job", lambda *_: list(digests.items()))
    spark = SourceSpark(
        [
            batch([*rows(0, 0, 1), *rows(1, 0)]),
            batch([*rows(1, 2), *rows(2, 2, 0)]),
            batch([*rows(0, 2), *rows(2, 1, value=b"w")]),
        ]
    )
    ranges = {number: OffsetRange(0, 3) for number in range(3)} | {3: OffsetRange(0, 1)}
    found = verify(spark, VerifyOptions("t", {"bootstrap.servers": "h:1"}, ranges=ranges))
    assert spark.given["kafka.bootstrap.servers"] == "h:1"
    assert [one.is_equal for one in found] == [True, False, False, False]
    assert [one.source.count for one in found] == [3, 2, 3, 0]
    assert found[3].source == Digest()

    assert pipeline_verify._report("t", found) == pipeline_verify.DIFFERENT
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == "t-0 offsets 0 to 2: 3 records, equal"
    assert lines[1].startswith("t-1 offsets 0 to 2: DIFFERENT: source 2 records, hash ")
    assert "; consumer 3 records, hash " in lines[1]
    assert lines[2].startswith("t-2 offsets 0 to 2: DIFFERENT: source 3 records, hash ")
    assert lines[3].startswith("t-3 offsets 0 to 0: DIFFERENT: source 0 records, hash 0000")
    assert said.err == "tidemark: the source differs from a consumer in t-1, t-2, t-3\n"
