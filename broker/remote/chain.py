"""Where an offset stands on a log's epoch chain, and how far its epoch reaches."""

from typing import Protocol

from kafka_protocol.types import EpochEntry


class Epochs(Protocol):
    """The chain of a log."""

    def entries(self) -> list[EpochEntry]:
        """All entries, ascending."""
        ...


class ChainedLog(Protocol):
    """A log with a chain and an end."""

    @property
    def epochs(self) -> Epochs:
        """Its chain."""
        ...

    @property
    def log_end_offset(self) -> int:
        """First offset not written (exclusive)."""
        ...


def epoch_span(log: ChainedLog, offset: int) -> tuple[int, int]:
    """The epoch of `offset` and the first offset after that epoch (exclusive).

    An offset below the whole chain belongs to no epoch: (-1, the chain's start).
    """
    entries = log.epochs.entries()
    end = log.log_end_offset
    for entry in reversed(entries):
        if entry.start_offset <= offset:
            return entry.epoch, end
        end = entry.start_offset
    return -1, end
