"""What tests of the metadata need: a small cluster, and a disk whose power can be cut."""

from collections.abc import Iterable
from pathlib import Path

from metadata_topic.controller.brokers import Registration, register_broker, unfence_broker
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import EMPTY_IMAGE, METADATA_VERSION, MetadataImage
from metadata_topic.image.model import Endpoint, Provenance
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.image.replay import replay_all
from runtime.dice import Dice
from runtime.disk import Buffer, Disk, OpenFile


def apply(image: MetadataImage, records: Iterable[MetadataRecord]) -> MetadataImage:
    """The image after `records`, which follow at the next offsets."""
    taken = list(records)
    at = image.provenance
    provenance = Provenance(at.offset + len(taken), max(at.epoch, 1), at.timestamp_ms + 1)
    return replay_all(image, taken, provenance)[0]


def registration_of(broker_id: int, *, life: int = 1, rack: str | None = None) -> Registration:
    """What broker `broker_id` says in its life number `life`; it has one log directory."""
    return Registration(
        broker_id,
        bytes([life]) * 16,
        (Endpoint("PLAINTEXT", "localhost", 9092 + broker_id),),
        SUPPORTED_FEATURES,
        rack,
        (bytes([100 + broker_id]) * 16,),
    )


def cluster_of(*broker_ids: int, features: dict[str, int] | None = None) -> MetadataImage:
    """A cluster whose brokers are registered and unfenced, without topics."""
    levels = {METADATA_VERSION: 30, **(features or {})}
    image = apply(
        EMPTY_IMAGE,
        [make("FeatureLevelRecord", name=n, feature_level=level) for n, level in levels.items()],
    )
    for broker_id in broker_ids:
        image = started(image, broker_id)
    return image


def started(image: MetadataImage, broker_id: int, *, life: int = 1) -> MetadataImage:
    """The image after a broker registered and was unfenced."""
    registered: ControllerResult[int] = register_broker(
        image, registration_of(broker_id, life=life)
    )
    image = apply(image, registered.records)
    unfenced = unfence_broker(image, broker_id=broker_id, broker_epoch=registered.response)
    return apply(image, unfenced.records)


class PowerCutError(Exception):
    """The machine is off: the call did not happen, or not as a whole."""


class PowerCutDisk(Disk):
    """Real files on a machine that loses power after so many operations.

    At the cut, of each file everything after its last fsync may be lost: a random part of it stays,
    the rest may be there as zeros (the length was written, the blocks were not). Fair, because a
    file system does this; renames count as done, since who depends on them fsyncs the directory.
    """

    def __init__(self, dice: Dice, operations: int) -> None:
        super().__init__()
        self._dice = dice
        self._left = operations
        self._synced: dict[Path, int] = {}

    @property
    def is_off(self) -> bool:
        return self._left <= 0

    def _tick(self) -> None:
        if self._left <= 0:
            raise PowerCutError
        self._left -= 1
        if self._left == 0:
            self._cut()
            raise PowerCutError

    def _cut(self) -> None:
        for path, synced in self._synced.items():
            if not path.exists():
                continue
            size = path.stat().st_size
            if size <= synced:
                continue
            kept = synced + int(self._dice.random() * (size - synced + 1))
            with path.open("r+b") as file:
                file.truncate(kept)
                if self._dice.random() < 0.3:
                    file.truncate(size)  # zeros where the lost bytes were

    def open_append(self, path: Path) -> OpenFile:
        self._tick()
        file = super().open_append(path)
        self._synced.setdefault(path, file.size())
        return file

    def append(self, file: OpenFile, data: Buffer) -> None:
        try:
            self._tick()
        except PowerCutError:
            if self._left == 0 and self._dice.random() < 0.5:
                super().append(file, memoryview(data)[: int(self._dice.random() * len(data))])
            raise
        super().append(file, data)

    def fsync(self, file: OpenFile) -> None:
        self._tick()
        super().fsync(file)
        path = Path(file.path)
        if path in self._synced:
            self._synced[path] = file.size()

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        self._tick()
        super().rename(source, target, durable=durable)
        if source in self._synced:
            self._synced[target] = self._synced.pop(source)

    def truncate(self, file: OpenFile, size: int) -> None:
        self._tick()
        super().truncate(file, size)
        path = Path(file.path)
        if path in self._synced:
            self._synced[path] = min(self._synced[path], size)

    def unlink(self, path: Path, *, missing_ok: bool = True) -> None:
        self._tick()
        super().unlink(path, missing_ok=missing_ok)
        self._synced.pop(path, None)
