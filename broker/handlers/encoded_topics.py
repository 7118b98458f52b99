"""Cache of the encoded topics in answers to Metadata.

An entry is valid as long as its topic and the brokers are those of the newest image. Images share
unchanged parts, so an identity comparison is enough. Each insertion checks some entries in turn and
drops the outdated ones. A full cache keeps its entries and adds none: if the oldest were evicted,
clients that read all topics in turn would never hit.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage, TopicImage

BYTES_MAX: Final = 32 * 1024 * 1024
ENTRY_BYTES: Final = 300
"""Approximate memory of an entry beside its encoded bytes."""

_FIRST_OF_LAYOUT: Final = (0, 1, 1, 1, 1, 5, 6, 7, 8, 9, 10, 10, 10, 10)
"""By version of Metadata: the first version with the same encoding of an existing topic."""


class Kind(NamedTuple):
    """Parameters of an encoded topic beside the metadata."""

    listener: str
    layout: int
    operations: int


def kind_of(listener: str, version: int, operations: int) -> Kind:
    """The kind of entry for a client of this listener and version."""
    return Kind(listener, _FIRST_OF_LAYOUT[version], operations)


class _Part(NamedTuple):
    topic: TopicImage
    brokers: Mapping[int, BrokerImage]
    encoded: bytes

    def is_of(self, image: MetadataImage) -> bool:
        current = image.topics_by_name.get(self.topic.name)
        return current is self.topic and image.brokers is self.brokers

    @property
    def size_bytes(self) -> int:
        return len(self.encoded) + ENTRY_BYTES


class EncodedTopics:
    """Encoded topics, of about `BYTES_MAX` together.

    Attributes:
        size_bytes: Approximate memory of all entries.
    """

    def __init__(self) -> None:
        self._parts: OrderedDict[tuple[str, Kind], _Part] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._parts)

    def find(self, topic: TopicImage, kind: Kind, image: MetadataImage) -> bytes | None:
        """The encoding of this topic object for the brokers of `image`; None: not in the cache."""
        part = self._parts.get((topic.name, kind))
        if part is None or part.topic is not topic or part.brokers is not image.brokers:
            return None
        return part.encoded

    def keep(
        self,
        topic: TopicImage,
        kind: Kind,
        brokers: Mapping[int, BrokerImage],
        encoded: bytes,
        image: MetadataImage,
    ) -> None:
        """Add an entry, unless it is outdated or the cache is full.

        Args:
            topic: The topic when its encoding began.
            kind: Parameters of the encoding.
            brokers: The brokers when its encoding began.
            encoded: The encoded topic.
            image: Newest committed image.
        """
        part, key = _Part(topic, brokers, encoded), (topic.name, kind)
        if not part.is_of(image):
            return
        if key in self._parts:
            self._drop(key)
        # At least two checks for each insertion keep outdated entries a minority.
        for _ in range(min(1 + part.size_bytes // ENTRY_BYTES, len(self._parts))):
            oldest = next(iter(self._parts))
            if self._parts[oldest].is_of(image):
                self._parts.move_to_end(oldest)
            else:
                self._drop(oldest)
        if self.size_bytes + part.size_bytes <= BYTES_MAX:
            self._parts[key] = part
            self.size_bytes += part.size_bytes

    def _drop(self, key: tuple[str, Kind]) -> None:
        self.size_bytes -= self._parts.pop(key).size_bytes
