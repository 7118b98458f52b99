"""Long batches are walked from guessed places, and wrong guesses change nothing."""

import random

import numpy as np
import pytest

from kafka_protocol.records.batch import HEADER_SIZE
from kafka_protocol.records.records import Record, build_batch, encode_records, iter_records
from pipeline.decode.group import Keep, Origin, decode_group
from pipeline.decode.lanes import lane_starts, record_starts
from pipeline.decode.varints import Varints, WrongRecordsError

TIME = 1_700_000_000_000


def batch_of(values: list[bytes | None], base: int = 0) -> bytes:
    made = [
        Record(base + n, TIME + n * 7, b"k" * (n % 20), value, [("trace", b"\0\1")] * (n % 3))
        for n, value in enumerate(values)
    ]
    return bytes(build_batch(made, base_offset=base))


def places(batches: list[bytes]) -> tuple[Varints, np.ndarray, np.ndarray]:
    sizes = np.array([len(one) for one in batches], np.int64)
    ends = np.cumsum(sizes)
    return Varints(b"".join(batches)), ends - sizes + HEADER_SIZE, ends


def offsets_and_values(data: bytes) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    for rows in decode_group(data, Origin("t", 0, "x", 0), Keep(0, 1 << 62), ["offset", "value"]):
        found += zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return found


@pytest.mark.parametrize("kind", ["text", "noise", "zeros", "null"])
def test_guessed_places_give_every_record_of_long_batches(kind: str) -> None:
    rng = random.Random(kind)
    values: list[bytes | None] = [
        {
            "text": b'{"order": %d}' % n * rng.randrange(1, 9),
            "noise": rng.randbytes(rng.randrange(200)),
            "zeros": bytes(rng.randrange(200)),
            "null": None,
        }[kind]
        for n in range(9000)
    ]
    data, start, end = places([batch_of(values), batch_of(values[:3], 10**6)])
    count = np.array([9000, 3])
    found = lane_starts(data, start, end, count)
    assert found is not None, "no guess was any good"
    assert len(found) == 9003
    assert found[0] == start[0]
    assert found[9000] == start[1]
    wrong_count = np.array([8999, 4])
    assert lane_starts(data, start, end, wrong_count) is None


def test_records_inside_of_records_mislead_no_one() -> None:
    inner = encode_records([Record(n, TIME, None, b"inner", []) for n in range(200)], 0, TIME)
    values: list[bytes | None] = [inner if n % 50 == 0 else b"outer" for n in range(2000)]
    batch = batch_of(values)
    wanted = [(record.offset, record.value) for record in iter_records(batch)]
    assert offsets_and_values(batch) == wanted


def test_bytes_of_a_batch_without_records_are_seen_beside_a_long_batch() -> None:
    data, start, end = places([batch_of([b"a"] * 5000), batch_of([b"b"], 5000)])
    with pytest.raises(WrongRecordsError, match="a count of no records"):
        record_starts(data, start, end, np.array([5000, 0]))


def test_few_records_are_walked_without_guesses() -> None:
    data, start, end = places([batch_of([b"a"] * 5), batch_of([b"b"] * 9, 5)])
    count = np.array([5, 9])
    assert lane_starts(data, start, end, count) is None
    assert len(record_starts(data, start, end, count)) == 14
