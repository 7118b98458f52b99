"""What must hold of store and metadata once nothing is under way: checked from outside.

The store is whatever a listing shows, the metadata topic is read as any consumer reads it and
folded by the state tables. Neither asks the broker, or a plugin, what it believes; the objects'
names are spelled here once more, after docs/tiering.md §7.
"""

from collections.abc import Callable, Mapping

from kafka_protocol.wire.primitives import uuid_to_text
from rlmm import records
from rlmm.fold import Fold
from rlmm.store import MemoryStore, Position
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from tests.support.brokers.clients import read_all
from tests.support.brokers.process import BrokerProcess, until

METADATA_TOPIC = "__remote_log_metadata"
METADATA_PARTITIONS = 3

Listing = Callable[[], Mapping[str, int]]
"""Every object in a store: key, relative to the plugin's root, and size in bytes."""


def directory_listing(broker: BrokerProcess) -> dict[str, int]:
    """Every file of a broker that tiers to its directory."""
    root = broker.remote_directory
    return {
        str(path.relative_to(root)): path.stat().st_size
        for path in root.rglob("*")
        if path.is_file()
    }


class Auditor:
    """Follows a broker's metadata topic from its begin, and compares it with a store.

    Attributes:
        finished: ids of all segments that were ever FINISHED, as text.
    """

    def __init__(self, broker: BrokerProcess, listing: Listing) -> None:
        self._broker, self._listing = broker, listing
        self._store = MemoryStore()
        self._positions = [0] * METADATA_PARTITIONS
        self.finished: set[str] = set()

    def disagreements(self) -> list[str]:
        """What is only in the store, or only in FINISHED segments, or still under way."""
        listed = self._listing().items()
        in_store = {key: size for key, size in listed if not key.startswith("claims/")}
        self.catch_up()
        expected, under_way = self._expected()
        sizes = {
            key: (size, expected[key])
            for key, size in in_store.items()
            if expected.get(key) not in {None, size}
        }
        return [
            *(f"only in the store: {key}" for key in sorted(in_store.keys() - expected.keys())),
            *(f"only in the metadata: {key}" for key in sorted(expected.keys() - in_store.keys())),
            *(f"{key} has {size} bytes, not {wanted}" for key, (size, wanted) in sizes.items()),
            *under_way,
        ]

    def agreed(self) -> None:
        """Wait until the store holds the objects of FINISHED segments, exactly."""
        last: list[str] = []

        def agree() -> bool:
            last[:] = self.disagreements()
            return not last

        try:
            until(agree, "store and metadata agree")
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(last)) from None

    def catch_up(self) -> None:
        """Read the topic to its end."""
        for number, position in enumerate(self._positions):
            fold = Fold(self._store, number)
            for offset, _, value in read_all(self._broker, METADATA_TOPIC, number, start=position):
                fold.take(records.decode(value), order=offset, seen_ms=0)
                position = offset + 1
                self._note_finished(fold)
            self._store.write(number, fold.changes, Position(position, 0))
            self._positions[number] = position

    def _note_finished(self, fold: Fold) -> None:
        for (_, segment_id), change in fold.changes.segments.items():
            if (
                change.after is not None
                and change.after.metadata.state is SegmentState.COPY_SEGMENT_FINISHED
            ):
                self.finished.add(uuid_to_text(segment_id))

    def _expected(self) -> tuple[dict[str, int | None], list[str]]:
        """Objects of all FINISHED segments with their sizes, where the metadata knows them.

        Also the segments in another live state.
        """
        objects: dict[str, int | None] = {}
        under_way: list[str] = []
        for number in range(METADATA_PARTITIONS):
            for facts in self._store.all_facts(number):
                key = facts.topic_id_partition.topic_id, facts.topic_id_partition.partition
                for entry in self._store.entries(number, key):
                    stem = _stem(entry.metadata)
                    if entry.metadata.state is SegmentState.COPY_SEGMENT_FINISHED:
                        objects[f"{stem}.log"] = entry.metadata.segment_size_bytes
                        objects |= {f"{stem}.indexes": None, f"{stem}.manifest": None}
                    else:
                        under_way.append(f"{stem} is {entry.metadata.state.name}")
        return objects, under_way


def _stem(metadata: RemoteLogSegmentMetadata) -> str:
    owner = metadata.topic_id_partition
    return (
        f"{owner.topic}-{uuid_to_text(owner.topic_id)}/{owner.partition}"
        f"/{metadata.start_offset:020d}-{uuid_to_text(metadata.id.id)}"
    )


def agreed(broker: BrokerProcess) -> None:
    """The same of a broker that tiers to its directory."""
    Auditor(broker, lambda: directory_listing(broker)).agreed()
