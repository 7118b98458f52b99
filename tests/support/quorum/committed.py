"""What controllers have on their disks, up to one offset: bytes, and the image they amount to.

Read from the files, beside controllers that run: only what was committed before counts, and only
names that are final.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.quorum.log.batches import read_batches, whole_batches
from metadata_topic.quorum.snapshot.snapshots import read_snapshot
from metadata_topic.raft.messages import SnapshotId
from tests.support.quorum.controllers import Controller
from tests.support.quorum.history import TopicState


@dataclass(frozen=True)
class Copy:
    """One node's metadata directory.

    Attributes:
        batches: whole batches by their base offset, ascending, all below `end_offset`.
        end_offset: up to where (exclusive) it was read.
        snapshot_id: the newest snapshot within; None without any.
    """

    node_id: int
    batches: Mapping[int, bytes]
    end_offset: int
    image: MetadataImage
    snapshot_id: SnapshotId | None

    @property
    def start_offset(self) -> int:
        return min(self.batches, default=self.end_offset)

    @property
    def topics(self) -> dict[str, TopicState]:
        return topics_of(self.image)


def read_copy(controller: Controller, end_offset: int) -> Copy:
    """Read one controller's snapshot and log up to `end_offset` (exclusive).

    A file may go while it is read, since snapshots make the log shorter: then all is read again.
    """
    for _ in range(5):
        try:
            return _read(controller, end_offset)
        except FileNotFoundError:
            continue
    return _read(controller, end_offset)


def _read(controller: Controller, end_offset: int) -> Copy:
    directory = controller.metadata
    snapshot_id, loader = _newest_snapshot(directory, end_offset)
    batches: dict[int, bytes] = {}
    reached = snapshot_id.end_offset if snapshot_id else 0
    for base, data in _batches(directory, end_offset):
        batches[base] = data
        (batch,) = read_batches(data)
        header = batch.header
        if base < reached:
            continue
        assert base == reached, f"{directory}: offset {base} where {reached} is due"
        for record in batch.records:
            loader.add(record)
        reached = header.next_offset
        loader.end_of_batch(
            Provenance(reached - 1, header.partition_leader_epoch, header.max_timestamp)
        )
    assert reached == end_offset, f"{directory} ends at {reached}, asked for {end_offset}"
    image, _ = loader.take()
    return Copy(controller.node_id, batches, end_offset, image, snapshot_id)


def _newest_snapshot(directory: Path, end_offset: int) -> tuple[SnapshotId | None, ImageLoader]:
    found = [parse_name(path) for path in directory.glob("*.checkpoint")]
    usable = sorted(one for one in found if 0 < one.end_offset <= end_offset)
    loader = ImageLoader(EMPTY_IMAGE)
    if not usable:
        return None, loader
    newest = usable[-1]
    snapshot = read_snapshot((directory / newest.file_name).read_bytes())
    for batch in snapshot.batches():
        for record in batch:
            loader.add(record)
    loader.end_of_batch(
        Provenance(newest.end_offset - 1, newest.epoch, snapshot.last_contained_timestamp_ms)
    )
    return newest, loader


def _batches(directory: Path, end_offset: int) -> Iterator[tuple[int, bytes]]:
    """(base offset, bytes) below `end_offset`; what is appended behind it is not looked at."""
    for path in sorted(directory.glob("*.log")):
        if int(path.stem) >= end_offset:
            return
        data = path.read_bytes()
        for position, header in whole_batches(data):
            if header.base_offset >= end_offset:
                return
            yield header.base_offset, data[position : position + header.size_bytes]
            if header.next_offset >= end_offset:
                return


def batches_of(controller: Controller, end_offset: int) -> dict[int, bytes]:
    """What is left of its log below `end_offset`: whole batches by base offset, ascending."""
    return dict(_batches(controller.metadata, end_offset))


def parse_name(path: Path) -> SnapshotId:
    """The id of a snapshot file."""
    end_offset, epoch = path.stem.split("-")
    return SnapshotId(int(end_offset), int(epoch))


def topics_of(image: MetadataImage) -> dict[str, TopicState]:
    """By name."""
    return {
        name: TopicState(
            topic.id, len(topic.partitions), tuple(sorted(image.topic_config(name).items()))
        )
        for name, topic in image.topics_by_name.items()
    }


def differences(copies: list[Copy]) -> list[str]:
    """Where copies of one end offset are not the same; a sentence each."""
    first = copies[0]
    wrong = []
    for other in copies[1:]:
        names = f"controllers {first.node_id} and {other.node_id}"
        start = max(first.start_offset, other.start_offset)
        both = first.batches.keys() | other.batches.keys()
        for base in sorted(one for one in both if one >= start):
            if first.batches.get(base) != other.batches.get(base):
                wrong.append(f"{names} differ in the batch at offset {base}")
                break
        if first.image != other.image:
            wrong.append(f"the images of {names} at {first.end_offset} differ")
    return wrong
