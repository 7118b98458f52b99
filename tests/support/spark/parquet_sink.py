"""What Spark's Parquet sink holds, read without Spark: the files that its log of batches names.

A batch that was killed leaves files that the log does not name; they do not count.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from kafka_protocol.types import TopicPartition
from tests.support.lake.rows import Digest, Row, digests, rows_of_arrow


def committed_files(sink: Path) -> list[Path]:
    """Files of all batches that were committed, in any order; none twice."""
    entries = [path for path in (sink / "_spark_metadata").iterdir() if path.name[0].isdigit()]
    compacted = max((_number(path) for path in entries if path.suffix == ".compact"), default=-1)
    found: dict[str, None] = {}
    for path in entries:
        is_whole = path.suffix == ".compact"  # it holds all before it, too
        if _number(path) > compacted or (_number(path) == compacted and is_whole):
            for line in path.read_text().splitlines()[1:]:
                entry = json.loads(line)
                assert entry["action"] == "add", entry
                assert entry["path"] not in found, f"twice in the sink: {entry['path']}"
                found[entry["path"]] = None
    return [Path(unquote(urlsplit(name).path)) for name in found]


def sink_rows(sink: Path) -> Iterator[Row]:
    """All rows of the sink."""
    for path in committed_files(sink):
        table = pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
        yield from rows_of_arrow(table.to_batches())


def sink_digests(sink: Path) -> dict[TopicPartition, Digest]:
    """Count and hash of each partition in the sink."""
    return digests(sink_rows(sink))


def _number(path: Path) -> int:
    return int(path.name.split(".")[0])
