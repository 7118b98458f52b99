"""What is decoded, and which rows of it are wanted."""

from dataclasses import dataclass

from kafka_protocol.types import EpochEntry
from pipeline.decode.aborted_lookup import NOTHING_ABORTED, AbortedLookup


@dataclass(frozen=True, slots=True)
class Origin:
    """Where bytes come from: for rows and for messages.

    Attributes:
        name: the object, or the broker.
        position: of the data's first byte in it.
    """

    topic: str
    partition: int
    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Which rows are wanted.

    Attributes:
        first: smallest offset (inclusive).
        last: largest offset (inclusive).
        aborted: transactions whose records are left out.
        epochs: where given, every batch must be of this chain's epoch at its base offset; one
            below the first entry may be of any.
    """

    first: int
    last: int
    aborted: AbortedLookup = NOTHING_ABORTED
    epochs: tuple[EpochEntry, ...] = ()
