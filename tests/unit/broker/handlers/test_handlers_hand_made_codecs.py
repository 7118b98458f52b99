"""The answers written by hand are byte for byte those of the compiled codec."""

import os

import pytest

from broker.handlers import fetch_codec, produce_codec
from broker.replica.fetch_types import FetchPartition, PartitionRead
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from runtime.disk import Disk, FileRegion


def joined(parts: list[object]) -> bytes:
    return b"".join(
        os.pread(p.file.fd, p.size_bytes, p.position) if isinstance(p, FileRegion) else bytes(p)  # type: ignore[call-overload]
        for p in parts
    )


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("with_text", [False, True])
@pytest.mark.parametrize("topics", [0, 1, 3, 200])
def test_produce_answers(version: int, with_text: bool, topics: int) -> None:
    message = response(ApiKey.PRODUCE)
    error = ("why", ((0, "key"), (3, "more"))) if with_text else (None, ())
    named = [
        (
            bytes([i % 256]) * 16 if version >= 13 else f"topic-é-{i}",
            [(p, p % 2, 2**40 + p, -1, 7, error[1], error[0]) for p in range(i % 4)],
        )
        for i in range(topics)
    ]
    data = joined(produce_codec.encode_answer(version, named))
    value, end = message.decode(data, version)
    assert end == len(data)
    assert message.encode(value, version) == data
    assert len(value.responses) == topics
    for (topic, answers), got in zip(named, value.responses, strict=True):
        assert (got.topic_id if version >= 13 else got.name) == topic
        for answer, p in zip(answers, got.partition_responses, strict=True):
            assert (p.index, p.error_code, p.base_offset) == answer[:3]
            assert p.log_start_offset == (answer[4] if version >= 5 else -1)
            if version >= 8:
                assert p.error_message == answer[6]
                assert [(e.batch_index, e.batch_index_error_message) for e in p.record_errors] == [
                    *answer[5]
                ]


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("count", [0, 1, 5, 300])
def test_fetch_answers(version: int, count: int) -> None:
    message = response(ApiKey.FETCH)
    disk = Disk()
    file = disk.memfd("data")
    disk.write_at(file, 0, bytes(range(256)) * 4)
    reads = []
    for i in range(count):
        topic = f"t{i // 3}"
        key = bytes([i // 3]) * 16 if version >= 13 else topic
        read = PartitionRead(FetchPartition((key, i), topic, None, i, 0, 0), error=i % 3)
        read.high_watermark, read.last_stable_offset, read.log_start_offset = i + 2, i + 1, i
        if i % 2:
            read.regions = [FileRegion(file, i, 3), FileRegion(file, 0, 200)]
            read.size_bytes = 203
        read.aborted = [None, [], [(5, 6), (7, 8)]][i % 3]
        if i % 5 == 4 and version >= 12:
            read.diverging = (9, 2**33)
        reads.append(read)
    data = joined(fetch_codec.encode_answer(version, 3, 4, reads))
    value, end = message.decode(data, version)
    assert end == len(data)
    assert message.encode(value, version) == data
    found = [p for t in value.responses for p in t.partitions]
    assert [p.partition_index for p in found] == list(range(count))
    assert [len(p.records) for p in found] == [r.size_bytes for r in reads]
    assert [p.high_watermark for p in found] == [r.high_watermark for r in reads]
    for p, read in zip(found, reads, strict=True):
        aborted = p.aborted_transactions
        told = None if aborted is None else [(a.producer_id, a.first_offset) for a in aborted]
        assert told == read.aborted
        if read.diverging is not None:
            assert (p.diverging_epoch.epoch, p.diverging_epoch.end_offset) == read.diverging
