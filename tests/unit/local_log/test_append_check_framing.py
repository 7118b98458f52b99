"""What bytes that are no batch are answered: as Apache Kafka 4.3.1 answered when it was asked."""

from struct import pack_into

import pytest

from kafka_protocol.records.records import build_batch
from local_log.errors import CorruptMessage, InvalidRecord
from local_log.log.append_check import check_framing

BATCH = bytes(build_batch([(1_700_000_000_000, None, b"x", [])]))
CUT, DAMAGED = InvalidRecord.code, CorruptMessage.code

ANSWERS = [
    # bytes, length field, answer
    (0, None, CUT),
    (11, None, CUT),
    *((size, 0, DAMAGED) for size in (12, 13, 16, 17, 26, 40, 60, 61, 69)),
    *((size, -1, DAMAGED) for size in (12, 17, 60, 69)),
    (69, -(2**31), DAMAGED),
    (12, 1, DAMAGED),  # too short for anything, though a byte of it is missing
    (20, 13, DAMAGED),
    *((size, 14, CUT) for size in (12, 16, 17, 21)),
    *((size, 49, CUT) for size in (12, 16, 17, 26, 40, 51, 60)),
    *((size, 14, DAMAGED) for size in (40, 60, 61, 69)),
    *((size, 39, DAMAGED) for size in (51, 60, 69)),
    *((size, 48, DAMAGED) for size in (60, 61, 69)),
    (59, 48, CUT),
    (60, 57, CUT),
    (68, 57, CUT),
    (69, 58, CUT),
    (69, 5000, CUT),
    # Kafka: UNKNOWN_SERVER_ERROR (-1)
    *((size, size - 12, DAMAGED) for size in (26, 32, 40, 50)),
    (69, 38, DAMAGED),
    (69, 2**31 - 1, CUT),
]


@pytest.mark.parametrize(("size", "length", "code"), ANSWERS)
def test_bytes_that_are_no_batch(size: int, length: int | None, code: int) -> None:
    data = bytearray(BATCH)
    if length is not None:
        pack_into(">i", data, 8, length)
    with pytest.raises((InvalidRecord, CorruptMessage)) as refused:
        check_framing(data[:size])
    assert refused.value.code == code


def test_a_batch_is_taken() -> None:
    assert len(BATCH) == 69
    assert check_framing(BATCH).size_bytes == 69
