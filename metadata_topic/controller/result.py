"""What a controller function returns: records to write and what to answer once they are durable.

The functions are pure; the metadata node appends the records, replays them into the next image and
hands the response out only after that. An empty record list writes nothing.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from metadata_topic.image.records import MetadataRecord

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
