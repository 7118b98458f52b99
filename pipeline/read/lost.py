"""Offsets that are gone: an error, or skipped and counted. One place decides."""

import logging
from dataclasses import dataclass, field

from kafka_protocol.types import TopicPartition
from pipeline.errors import SKIP_LOST, DataLossError

log = logging.getLogger(__name__)

_REASONS_MAX = 1_000


@dataclass(slots=True)
class LostOffsets:
    """Offsets that a reader of splits had to skip; the caller makes one and reads it afterwards.

    Attributes:
        count: offsets; of a part of a segment it is an estimate by bytes.
        losses: how often some were skipped.
    """

    count: int = 0
    losses: int = 0
    _sentences: list[str] = field(default_factory=list, repr=False)

    @property
    def reasons(self) -> tuple[str, ...]:
        """One sentence for each loss, of the first 1,000; the log has all."""
        return tuple(self._sentences)

    def add(self, count: int, reason: str) -> None:
        """Count a loss."""
        self.count += count
        self.losses += 1
        if self.losses <= _REASONS_MAX:
            self._sentences.append(reason)


@dataclass(frozen=True, slots=True)
class LossRule:
    """The action when offsets are gone.

    Attributes:
        is_error: `failOnDataLoss`.
        lost: takes what was skipped.
    """

    is_error: bool
    lost: LostOffsets

    def apply(self, partition: TopicPartition, first: int, last: int, reason: str) -> None:
        """Offsets `[first, last]` cannot be read.

        Raises:
            DataLossError: names them, if that is an error.
        """
        self.apply_counted(partition, first, last, last - first + 1, reason)

    def apply_counted(
        self, partition: TopicPartition, first: int, last: int, count: int, reason: str
    ) -> None:
        """Apply as `apply` does, where only `count` of the offsets `[first, last]` are gone."""
        if count <= 0:
            return
        text = f"{partition}: offsets {first} to {last} cannot be read: {reason}"
        if self.is_error:
            raise DataLossError(f"{text}; plan again, or skip what is lost: {SKIP_LOST}")
        log.warning(
            "lost offsets: topic=%s partition=%d first=%d last=%d count=%d reason=%s",
            partition.topic,
            partition.partition,
            first,
            last,
            count,
            reason,
        )
        self.lost.add(count, text)
