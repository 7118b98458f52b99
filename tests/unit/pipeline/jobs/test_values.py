"""What is kept with a commit, as text."""

import pytest

from pipeline.errors import DamagedDataError
from pipeline.jobs.values import Committed, decode_committed, encode_committed
from tests.support.export.topics import IDENTITY

SAID = Committed(IDENTITY, {0: 12, 1: 0, 3: 77}, {0: 3, 3: 0})


def test_offsets_of_many_partitions_are_short_and_can_be_read_by_a_person() -> None:
    text = encode_committed(SAID)
    assert '"version": 2' in text
    assert '"partitions": "12@3 0 - 77@0"' in text
    assert decode_committed(text, "here") == SAID
    many = {partition: 123_456_789 + partition for partition in range(1000)}
    assert len(encode_committed(Committed(IDENTITY, many, dict.fromkeys(many, 3)))) < 12_300


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b'{"version": 1, "partitions": ""}', b'{"version": 2}',
        b'{"version": 2, "identity": {}, "partitions": "x"}',
        b'{"version": 2, "identity": {}, "partitions": "1@x"}',
        b'{"version": 2, "identity": {}, "partitions": [1]}',
    ],
)  # fmt: skip
def test_what_is_no_list_of_offsets_is_refused_by_name(text: bytes) -> None:
    with pytest.raises(DamagedDataError, match="here"):
        decode_committed(text, "here")
