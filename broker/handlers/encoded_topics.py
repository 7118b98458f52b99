"""Topics' parts of answers to Metadata, kept encoded.

A part is right as long as its topic and the brokers are those of the image. Unchanged parts of an
image are shared between images, so identity tells. Whatever is kept then goes out of date by
itself: each time a part is kept, some of those that are there are looked at in turn, and the
outdated ones are dropped. Where there is no room left, what is there stays and nothing is added:
clients that ask for all topics in turn would find nothing if the oldest went for the newest.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage, TopicImage

BYTES_MAX: Final = 32 * 1024 * 1024
ENTRY_BYTES: Final = 300
"""About so much memory for each, beside the bytes encoded."""

_FIRST_OF_LAYOUT: Final = (0, 1, 1, 1, 1, 5, 6, 7, 8, 9, 10, 10, 10, 10)
"""By version of Metadata: the first one in which a topic that exists is encoded as in it."""


class Kind(NamedTuple):
    """What a topic's part depends on beside the metadata."""

    listener: str
    layout: int
    operations: int


def kind_of(listener: str, version: int, operations: int) -> Kind:
    """The kind of part that a client of this listener gets in this version."""
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
    """Keeps parts, of about `BYTES_MAX` together.

    Attributes:
        size_bytes: of all, about.
    """

    def __init__(self) -> None:
        self._parts: OrderedDict[tuple[str, Kind], _Part] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._parts)

    def find(self, topic: TopicImage, kind: Kind, image: MetadataImage) -> bytes | None:
        """The part of this very topic for the brokers of `image`, if it is kept."""
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
        """Keep a part, if it is not outdated already and there is room.

        Args:
            topic: as it was when its encoding began.
            kind: of the part.
            brokers: likewise.
            encoded: the part.
            image: the metadata as they are now.
        """
        part, key = _Part(topic, brokers, encoded), (topic.name, kind)
        if not part.is_of(image):
            return
        if key in self._parts:
            self._drop(key)
        # At least two: so fewer are outdated than not, but for a few. Dropping so many frees space.
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
