"""Count and hash of records."""

from itertools import combinations

import pyarrow as pa

from pipeline.columns import schema_of
from pipeline.jobs.record_hash import Digest, digests_of_batches, hash_record
from pipeline.jobs.write_task import COLUMNS

PLACE = (5, 1000, 0)


def test_whatever_differs_gives_another_hash() -> None:
    several = [
        hash_record(PLACE, b"k", b"v", None),
        hash_record((6, 1000, 0), b"k", b"v", None),
        hash_record((5, 1001, 0), b"k", b"v", None),
        hash_record((5, 1000, 1), b"k", b"v", None),
        hash_record(PLACE, None, b"kv", None),
        hash_record(PLACE, b"", b"kv", None),
        hash_record(PLACE, b"kv", b"", None),
        hash_record(PLACE, b"kv", None, None),
        hash_record(PLACE, b"k", b"v", [("a", b"b")]),
        hash_record(PLACE, b"k", b"v", [("a", None)]),
        hash_record(PLACE, b"k", b"v", [("ab", b"")]),
        hash_record(PLACE, b"k", b"v", [("a", b"b"), ("c", b"d")]),
        hash_record(PLACE, b"k", b"v", [("c", b"d"), ("a", b"b")]),
    ]
    assert all(one != other for one, other in combinations(several, 2))


def test_order_and_pieces_do_not_matter() -> None:
    hashes = [hash_record((offset, 0, 0), None, b"v", None) for offset in range(10)]
    one, other, piece = Digest(), Digest(), Digest()
    for each in hashes:
        one.add(each)
    for each in hashes[7:]:
        other.add(each)
    for each in reversed(hashes[:7]):
        piece.add(each)
    other.join(piece)
    assert one == other


def test_batches_of_the_source_give_the_digest_of_their_records() -> None:
    rows = {
        "key": [b"k", None], "value": [None, b"v"], "topic": ["t", "t"], "partition": [1, 2],
        "offset": [5, 6], "timestamp": [1_000_000, -1_000], "timestampType": [0, 1],
        "headers": [[{"key": "h", "value": None}], None],
    }  # fmt: skip
    batch = pa.record_batch(rows, schema=schema_of(COLUMNS))
    assert digests_of_batches([batch]) == {
        1: Digest(1, hash_record((5, 1000, 0), b"k", None, [("h", None)])),
        2: Digest(1, hash_record((6, -1, 1), None, b"v", [])),
    }


def test_a_time_beyond_the_year_9999_is_a_number_like_any() -> None:
    at_ms = 253_402_300_800_000
    row = {
        "key": None, "value": b"v", "topic": "t", "partition": 1, "offset": 5,
        "timestamp": at_ms * 1000, "timestampType": 0, "headers": None,
    }  # fmt: skip
    batch = pa.RecordBatch.from_pylist([row], schema=schema_of(COLUMNS))
    wanted = Digest(1, hash_record((5, at_ms, 0), None, b"v", None))
    assert digests_of_batches([batch]) == {1: wanted}
