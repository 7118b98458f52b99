"""Batches of the metadata log that are put together piece by piece."""

import pytest

from kafka_protocol.records.records import build_batch
from metadata_topic.image.records import encode_record, make
from metadata_topic.quorum.log.batches import read_batches, read_records, value_batch, whole_batches


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1_700])
def test_the_bytes_are_those_of_a_batch_that_is_built_at_once(count: int) -> None:
    values = [f"value-{number}".encode() for number in range(count)]
    whole = build_batch([(77, None, value, ()) for value in values], base_offset=9, leader_epoch=3)
    steps = value_batch(values, base_offset=9, epoch=3, timestamp_ms=77)
    assert steps == whole


def test_records_are_read_one_by_one_as_they_are_read_at_once() -> None:
    records = [make("TopicRecord", name=f"t{n}", topic_id=bytes([n]) * 16) for n in range(20)]
    data = bytearray()
    for start in (0, 10):
        values = [encode_record(record) for record in records[start : start + 10]]
        data += value_batch(values, base_offset=start, epoch=1, timestamp_ms=5)
    one_by_one = [
        record for position, _ in whole_batches(data) for record in read_records(data, position)
    ]
    at_once = [record for batch in read_batches(data) for record in batch.records]
    assert one_by_one == at_once == records
