"""From a stream of records to images, with metadata transactions.

Records between Begin- and EndTransactionRecord take effect at the end only: a controller that
crashed after half of its bootstrap records must leave nothing behind. Until then they wait in a
list.

An image ends at the end of a batch outside of any transaction, and has exactly the records before
that end. Kafka puts several decisions into one batch, so a transaction can begin after records that
already count. These wait too, until a batch ends outside of a transaction. After a snapshot of half
a batch, the log would repeat records that the snapshot has.

The same loader serves the start (thousands of records, one image at the end) and the running node
(one image per commit).
"""

from collections import deque
from collections.abc import Iterable

from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import RECORD_WORK, MetadataRecord
from metadata_topic.image.replay import BrokenMetadataLogError, replay
from runtime.work import Pace, Steps, at_once


class ImageLoader:
    """Collects records on top of an image until the next image is taken."""

    def __init__(self, image: MetadataImage) -> None:
        self._delta = MetadataDelta(image)
        self._provenance = image.provenance
        self._counted: deque[MetadataRecord] = deque()
        self._transaction: list[MetadataRecord] | None = None
        self.record_count = 0

    @property
    def in_transaction(self) -> bool:
        """True if a metadata transaction is open, so that the newest records are not visible."""
        return self._transaction is not None

    @property
    def is_blank(self) -> bool:
        """True if no record ever took effect, so that the bootstrap records are not written yet."""
        return self._delta.is_empty and not self._counted and not self._delta.base.features

    def add(self, record: MetadataRecord) -> None:
        """Take the next record of the log; it is replayed at the end of its batch.

        Raises:
            BrokenMetadataLogError: A transaction begins inside another, or ends without a begin.
        """
        self.record_count += 1
        match record.name:
            case "BeginTransactionRecord":
                if self._transaction is not None:
                    raise BrokenMetadataLogError("a metadata transaction begins within another")
                self._transaction = []
            case "EndTransactionRecord":
                self._counted += self._close(record.name)
            case "AbortTransactionRecord":
                self._close(record.name)
            case _:
                waiting: list[MetadataRecord] | deque[MetadataRecord]
                waiting = self._counted if self._transaction is None else self._transaction
                waiting.append(record)

    def _close(self, what: str) -> list[MetadataRecord]:
        if self._transaction is None:
            raise BrokenMetadataLogError(f"{what} without a metadata transaction")
        waiting, self._transaction = self._transaction, None
        return waiting

    def end_of_batch(self, provenance: Provenance) -> None:
        """End a batch at `provenance`, and replay the records that count now.

        Raises:
            UnknownMetadataRecordError: There is no rule for a record.
            BrokenMetadataLogError: A record contradicts the records before it.
        """
        at_once(self.end_of_batch_steps(provenance))

    def end_of_batch_steps(self, provenance: Provenance) -> Steps[None]:
        """`end_of_batch` in steps; no other method may be called before the last step."""
        if self._transaction is not None:
            return
        pace = Pace()
        while self._counted:
            replay(self._delta, self._counted.popleft())
            if pace.is_step_over(RECORD_WORK):
                yield
        self._provenance = provenance

    def drop_removed(self, topic_ids: Iterable[bytes]) -> None:
        """Take ids off the list of removed tiered topics in this image, without a record."""
        for topic_id in topic_ids:
            self._delta.drop_removed(topic_id)

    def take(self) -> tuple[MetadataImage, MetadataDelta]:
        """Make the image as of the last batch that ended outside of a transaction.

        The next delta begins on top of it and keeps the records of an unfinished batch or
        transaction.
        """
        delta = self._delta
        image = delta.image(self._provenance)
        self._delta = MetadataDelta(image)
        return image, delta
