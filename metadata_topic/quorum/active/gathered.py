"""Decisions that go into the log in one append, and so with one fsync."""

from kafka_protocol.records.batch import read_header
from metadata_topic.raft.messages import BatchFacts


class Gathered:
    """Batches that lie back to back and are not appended yet.

    Each decision keeps its own batches: an image ends where a decision ends, never inside a batch,
    and a broker epoch is the offset of its own record.
    """

    __slots__ = ("_data", "_facts")

    def __init__(self) -> None:
        self._data = bytearray()
        self._facts: list[BatchFacts] = []

    def __len__(self) -> int:
        """Bytes that wait."""
        return len(self._data)

    def add(self, data: bytearray) -> None:
        """Take the batches of one more decision; they are the caller's no longer."""
        self._facts += batch_facts(data)
        if self._data:
            self._data += data
        else:
            self._data = data

    def take(self) -> tuple[tuple[BatchFacts, ...], bytearray]:
        """Hand out what waits, and begin anew."""
        facts, data = tuple(self._facts), self._data
        self._facts, self._data = [], bytearray()
        return facts, data


def batch_facts(data: bytearray) -> list[BatchFacts]:
    """Say where the batches of metadata records in `data` lie, which are known to be sound."""
    facts: list[BatchFacts] = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        epoch = header.partition_leader_epoch
        facts.append(BatchFacts(header.base_offset, header.last_offset + 1, epoch))
        position += header.size_bytes
    return facts
