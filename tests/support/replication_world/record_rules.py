"""What must hold of each record of the metadata topic as it lands, by who wrote it.

The fold that every reader runs decides what counts (`tier_validator`); here stands what it must not
let through, found out by other means: from the order of pairs in the topic, and from what was on
the writer's disk.
"""

from typing import TYPE_CHECKING

from rlmm.api import LOWEST_FENCE, REMOVER_FENCE, Fence
from rlmm.events import MetadataEvent
from rlmm.lifecycle import Verdict
from tests.support.quorum_world.errors import Violation

if TYPE_CHECKING:
    from tests.support.replication_world.tier_process import TierProcess
    from tests.support.replication_world.validator import Told
    from tests.support.replication_world.world import ReplicationWorld

Place = tuple[bytes, int]


class RecordRules:
    """See the module."""

    def __init__(self, world: "ReplicationWorld") -> None:
        self.world = world
        self._highest: dict[Place, Fence] = {}
        self._owners: dict[tuple[Place, Fence], TierProcess] = {}

    def highest_epoch(self, place: Place) -> int:
        """The latest leader epoch under which a record of a partition has landed."""
        return self._highest.get(place, LOWEST_FENCE).leader_epoch

    def lands(self, event: MetadataEvent, verdict: Verdict, writer: "TierProcess | None") -> None:
        """A record has its place in the topic, and every reader validates it so."""
        tip, fence = event.topic_id_partition, event.stamp.fence
        place = tip.topic_id, tip.partition
        told = self.world.validator.partitions.get(place)
        if told is None or fence == REMOVER_FENCE:
            return
        highest = self._highest.get(place, LOWEST_FENCE)
        self._highest[place] = max(highest, fence)
        if writer is not None:
            owner = self._owners.setdefault((place, fence), writer)
            if owner is not writer:
                what = f"{writer.node} writes under {fence}, as {owner.node} did"
                self._breaks("a pair has one owner", told, what)
            self._carries_what_is_kept(told, event, writer)
        if verdict is not Verdict.ACCEPTED:
            return
        if fence < highest:
            what = f"{event} is below {highest}"
            self._breaks("what a deposed owner writes counts no more", told, what)
        elections = [one for one in told.unclean_epochs if one <= fence.leader_epoch]
        if event.stamp.unclean_epoch < max(elections, default=-1):
            what = f"{event}, elected uncleanly in {elections}"
            self._breaks("records name the last unclean election", told, what)

    def _carries_what_is_kept(
        self, told: "Told", event: MetadataEvent, writer: "TierProcess"
    ) -> None:
        """Later owners take a carried log start over: it must not fall back at its writer."""
        if writer.has_ended or event.stamp.log_start < 0:
            return
        kept = writer.node.kept_log_start(told.name)
        if kept is not None and kept < event.stamp.log_start:
            what = f"{writer.node} carries {event.stamp.log_start}, its disk has {kept}"
            self._breaks("a record carries a log start that is on a disk", told, what)

    def _breaks(self, rule: str, told: "Told", what: str) -> None:
        raise Violation(rule, f"{told}: {what}")
