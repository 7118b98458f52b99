"""What a controller function returns: records to write and what to answer once they are durable.

The functions are pure; the metadata node appends the records, replays them into the next image and
hands the response out only after that. An empty record list writes nothing.

What may take long is decided in steps. The node pauses between them, and no other decision is taken
meanwhile: the image that was decided on is still the newest one when the records are written.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from metadata_topic.image.records import MetadataRecord
from runtime.work import Steps

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[R_co]):
    """Records and response of one decision.

    Attributes:
        records: written as one batch, so all of them or none.
        response: what the caller gets after the records are committed.
    """

    records: tuple[MetadataRecord, ...]
    response: R_co


Decided = ControllerResult[R] | Steps[ControllerResult[R]]
"""What a function that decides returns: its result, or the steps to it."""


def result_of(decided: Decided[R]) -> Steps[ControllerResult[R]]:
    """Take the steps to a decision, if there are any."""
    if isinstance(decided, ControllerResult):
        return decided
    return (yield from decided)
