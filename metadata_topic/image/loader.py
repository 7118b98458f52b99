"""From a stream of records to images, transactions respected.

Records between Begin- and EndTransactionRecord count only when the end is seen: a controller that
wrote half of its bootstrap records and died must leave nothing behind. They wait here in a list.

The same loader serves the start (thousands of records, one image at the end) and the running node
(one image per commit).
"""

from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import MetadataRecord
from metadata_topic.image.replay import BrokenMetadataLogError, replay


class ImageLoader:
    """Collects records on top of an image until somebody takes the next image."""

    def __init__(self, image: MetadataImage) -> None:
        self._delta = MetadataDelta(image)
        self._provenance = image.provenance
        self._transaction: list[MetadataRecord] | None = None
        self.record_count = 0

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open, so that the newest records are not visible."""
        return self._transaction is not None

    @property
    def is_blank(self) -> bool:
        """Whether no record ever counted: nobody wrote the bootstrap records yet."""
        return self._delta.is_empty and not self._delta.base.features

    def add(self, record: MetadataRecord) -> None:
        """Take the next record of the log.

        Raises:
            UnknownMetadataRecordError: there is no rule for it.
            BrokenMetadataLogError: it contradicts what came before.
        """
        self.record_count += 1
        match record.name:
            case "BeginTransactionRecord":
                if self._transaction is not None:
                    raise BrokenMetadataLogError("a metadata transaction begins within another")
                self._transaction = []
            case "EndTransactionRecord":
                for waiting in self._close(record.name):
                    replay(self._delta, waiting)
            case "AbortTransactionRecord":
                self._close(record.name)
            case _:
                if self._transaction is None:
                    replay(self._delta, record)
                else:
                    self._transaction.append(record)

    def _close(self, what: str) -> list[MetadataRecord]:
        if self._transaction is None:
            raise BrokenMetadataLogError(f"{what} without a metadata transaction")
        waiting, self._transaction = self._transaction, None
        return waiting

    def end_of_batch(self, provenance: Provenance) -> None:
        """Say up to where the records since the last call reach."""
        if self._transaction is None:
            self._provenance = provenance

    def take(self) -> tuple[MetadataImage, MetadataDelta]:
        """Make the image of everything added so far, and begin the next step on top of it."""
        delta = self._delta
        image = delta.image(self._provenance)
        self._delta = MetadataDelta(image)
        return image, delta
