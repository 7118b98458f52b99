"""What the passes of one ownership share: one leader epoch of one partition."""

from dataclasses import dataclass, field

from kafka_protocol.types import TopicIdPartition
from rlm.link import messages
from rlm.plugin_calls import Cancellation
from rlm.upkeep.hanging_calls import HangingCalls
from rlmm.api import Fence


class OwnCopies:
    """Ids of the copies this tier is running for one partition.

    The copying thread begins and ends them while an expiring thread looks. Its look at the metadata
    and its look here are not one moment: a copy may be STARTED in the first and have ended,
    FINISHED and told to the broker, before the second. So one that ends while somebody looks counts
    as running until that look is over.
    """

    __slots__ = ("_ended", "_running")

    def __init__(self) -> None:
        self._running: set[bytes] = set()
        self._ended: set[bytes] = set()

    def begin(self, segment_id: bytes) -> None:
        """A copy begins: called before its STARTED is sent."""
        self._running.add(segment_id)

    def end(self, segment_id: bytes) -> None:
        """The copy is over, in whatever way."""
        self._ended.add(segment_id)  # before it leaves the other set: it is never in none
        self._running.discard(segment_id)

    def look(self) -> None:
        """Begin a look: call it before asking which segments there are."""
        self._ended.clear()

    def seen(self) -> frozenset[bytes]:
        """All that ran at some moment since `look`."""
        return frozenset(self._running.copy() | self._ended.copy())


@dataclass(slots=True)
class Ownership:
    """One leader epoch (and incarnation) of one partition: what its tasks share."""

    partition: TopicIdPartition
    fence: Fence
    cancellation: Cancellation = field(default_factory=Cancellation)
    own_copies: OwnCopies = field(default_factory=OwnCopies)
    deleted_once: set[bytes] = field(default_factory=set)
    hanging: HangingCalls = field(default_factory=HangingCalls)
    last_report: messages.Report | None = None
