"""The decoders that walk over record batches by their length fields.

Each begins with sound batches, and with some of lengths that no batch has: a length of -12 leads a
reader that believes it back to where it stands.
"""

import struct
from collections.abc import Callable
from typing import Any

from kafka_protocol.errors import KafkaError, MalformedMessageError
from kafka_protocol.records.batch import HEADER_SIZE, iter_batches
from kafka_protocol.records.records import Record, build_batch, iter_records
from kafka_protocol.records.walk import glimpse_records
from metadata_topic.image.records import UnknownMetadataRecordError
from metadata_topic.quorum.log.batches import CorruptBatchError, read_batches
from metadata_topic.quorum.log.fetched import checked_prefix
from metadata_topic.quorum.snapshot.snapshots import CorruptSnapshotError, read_snapshot
from pipeline.decode.frames import DamagedBatchError, read_frames
from pipeline.decode.group import whole_batches
from pipeline.read.groups import batch_front
from rlm.read.chunk import DamagedChunkError, check_chunk
from rlm.read.segment_index import SegmentIndex
from tests.support.fuzz.decoder import Decoder, of_files, walked
from tests.support.samples.remote import metadata

INFLATED_MAX = 1 << 20
IMPOSSIBLE_LENGTHS = (-12, -13, -1, 0, 48, -(2**31), 2**31 - 1)
"""49 is the least that a batch has."""
READS_RECORDS = (KafkaError, MalformedMessageError)
_METADATA = (CorruptBatchError, UnknownMetadataRecordError, *READS_RECORDS)


def batches() -> list[bytes]:
    """Of each codec, and all of them in a row."""
    record = Record(0, 1_700_000_000_000, b"key", b"value" * 20, [("h", b"x"), ("n", None)])
    made = [build_batch([record._replace(offset=i) for i in range(4)], codec=c) for c in range(5)]
    return [bytes(one) for one in made] + [b"".join(map(bytes, made))]


def and_impossible(samples: Callable[[], list[bytes]]) -> Callable[[], list[bytes]]:
    """Samples, and batches of impossible lengths with a sound one behind them."""
    whole = batches()[0]
    bad = [whole[:8] + struct.pack(">i", one) + whole[12:] + whole for one in IMPOSSIBLE_LENGTHS]
    return lambda: [*samples(), *bad]


def of_each_batch(read: Callable[..., Any]) -> Callable[[bytes], object]:
    """As every reader does: batches by their lengths, then the records of each."""

    def records(data: bytes) -> object:
        found: list[Any] = []
        for position, _ in iter_batches(data):
            found += read(data, position, max_inflated_bytes=INFLATED_MAX)
        return found

    return records


def of_the_first(data: bytes) -> object:
    """A client's one batch, whatever its length says; of a sound header's size at least."""
    return [*glimpse_records(data.ljust(HEADER_SIZE, b"\0"), max_inflated_bytes=INFLATED_MAX)]


def chunk(data: bytes) -> object:
    """All of a remote segment of these bytes."""
    facts = metadata(0, 3, size_bytes=len(data))
    return check_chunk(memoryview(data), facts, SegmentIndex(facts, b"", b"", 1 << 20, 1 << 20), 0)


SOUND = and_impossible(batches)

WALKERS: dict[str, Decoder] = {
    "batches": Decoder(walked(iter_batches), (), SOUND),
    "records": Decoder(of_each_batch(iter_records), (KafkaError,), SOUND, INFLATED_MAX),
    "records at a glance": Decoder(
        of_each_batch(glimpse_records), (KafkaError,), SOUND, INFLATED_MAX
    ),
    "records of one batch": Decoder(of_the_first, (KafkaError,), SOUND, INFLATED_MAX),
    "metadata batches": Decoder(
        walked(read_batches), _METADATA, and_impossible(of_files("0*.log"))
    ),
    "metadata snapshot": Decoder(
        read_snapshot,
        (CorruptSnapshotError, *READS_RECORDS),
        and_impossible(of_files("0*.checkpoint")),
    ),
    "fetched metadata": Decoder(checked_prefix, (), and_impossible(of_files("0*.log"))),
    "chunk of a remote segment": Decoder(chunk, (DamagedChunkError,), SOUND),
    "front of a remote segment": Decoder(batch_front, (), SOUND),
    "group of batches": Decoder(whole_batches, (), SOUND),
    "frames of batches": Decoder(lambda data: read_frames(data, ()), (DamagedBatchError,), SOUND),
}
