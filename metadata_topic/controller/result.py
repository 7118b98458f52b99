"""Result of a controller function: records to write, and the response for after the commit.

The functions are pure. The metadata node appends the records, replays them into the next image and
gives out the response only after that. An empty record list writes nothing.

Long decisions run in steps. The loop runs other work between the steps, but no other decision. So
the image of the decision is still the newest one when its records are written.
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
        records: Written as one batch, so all of them or none.
        response: Given to the caller after the records are committed.
    """

    records: tuple[MetadataRecord, ...]
    response: R_co


Decided = ControllerResult[R] | Steps[ControllerResult[R]]
"""Return value of a deciding function: its result, or the steps to it."""


def result_of(decided: Decided[R]) -> Steps[ControllerResult[R]]:
    """Run the steps of a decision, if it has any, to its result."""
    if isinstance(decided, ControllerResult):
        return decided
    return (yield from decided)
