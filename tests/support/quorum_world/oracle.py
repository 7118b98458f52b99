"""What must hold of logs, votes and images, looked at from outside: the core's rules, on disks.

The rules of `tests.support.raft.oracle` are judged by what each machine's files say
(`mirror.LogMirror`). Beside them: images are those that the committed records give, on all nodes.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import MetadataRecord
from metadata_topic.quorum.log.batches import read_records, whole_batches
from metadata_topic.quorum.metadata_loader import Applied
from metadata_topic.raft.effects import AdvanceHighWatermark, Effect, RoleChanged
from metadata_topic.raft.events import Event, Received
from metadata_topic.raft.messages import SnapshotId
from metadata_topic.raft.voters import ReplicaKey
from tests.support.quorum_world.mirror import LogMirror
from tests.support.raft.batch_index import Batch
from tests.support.raft.errors import Violation
from tests.support.raft.oracle import Oracle

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode

IMAGES_KEPT = 4_000
PARTS_MAX = 4
"""A snapshot that is fetched, one that is written, and small files on their way to their names."""


class QuorumOracle(Oracle):
    """See the module.

    Attributes:
        reference: the image of everything that is committed.
        listeners: told (epoch, offset, record) of each committed record that counts.
    """

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.reference: MetadataImage = EMPTY_IMAGE
        self.listeners: list[Any] = []
        self._loader = ImageLoader(EMPTY_IMAGE)
        self._images: dict[int, MetadataImage] = {0: EMPTY_IMAGE}
        self._ends: deque[int] = deque()
        self._open: list[tuple[int, int, MetadataRecord]] | None = None

    @property
    def highest_epoch(self) -> int:
        """The highest epoch that any node ever named."""
        return max(self._epochs_said.values(), default=0)

    @property
    def newest_epoch(self) -> int:
        """The highest epoch that was led."""
        return max(self._leaders, default=0)

    # -- disks ----------------------------------------------------------------------------------

    def looks_at_disk(self, node: Any) -> None:
        """Judge what was written since the last look."""
        disk: LogMirror = node.disk
        for batch in disk.news():
            self._judge(node, disk, batch)

    def _judge(self, node: Any, disk: LogMirror, batch: Batch) -> None:
        facts = batch.facts
        known = self._batches.get((facts.base_offset, facts.epoch))
        if known is not None:
            if known[:2] != (facts.end_offset, batch.payload):
                raise Violation(
                    "the same offset and epoch are the same bytes", f"{node}: {facts}: {known}"
                )
            if facts.base_offset <= disk.first_offset:
                return
        before = disk.epoch_before(facts.base_offset)
        if facts.epoch < before:
            raise Violation("epochs never fall in a log", f"{node}: {facts} after {before}")
        new = (facts.end_offset, batch.payload, before)
        if self._batches.setdefault((facts.base_offset, facts.epoch), new) != new:
            raise Violation(
                "the same offset and epoch follow on the same",
                f"{node}: {facts} after epoch {before}, not {known and known[2]}",
            )
        if known is None and node.leads and facts.epoch == node.core.epoch:
            self._led(node, batch)

    def _led(self, node: Any, batch: Batch) -> None:
        """Tell what a leader has just written."""
        for position, header in whole_batches(batch.payload):
            if not header.is_control:
                for record in read_records(batch.payload, position):
                    self.world.workload.brokers.appends(node, batch.facts.epoch, record)

    def replaces_log(self, node: Any, snapshot_id: SnapshotId) -> None:
        """A fetched snapshot is of committed state, and takes nothing committed."""
        if snapshot_id.end_offset > self.high_watermark:
            self._sole_commits()
        if snapshot_id.end_offset > self.high_watermark:
            raise Violation("snapshots are of committed state", f"{node}: {snapshot_id}")
        self._drops(node, snapshot_id.end_offset)

    def _sole_commits(self) -> None:
        """What a sole voter has on its disk is committed: its start makes a snapshot of it."""
        if len(self._voters) == 1:
            node = self.world.nodes[self._voters[0].id]
            self.looks_at_disk(node)
            end = node.disk.flushed_end
            if node.up and node.replica is not None and end > self.high_watermark:  # type: ignore[attr-defined]
                self._commit(node, end)

    def _holds(self, disk: Any, end_offset: int) -> bool:
        if super()._holds(disk, end_offset):
            return True
        return any(one.end_offset >= end_offset for one in disk.snapshots())

    # -- steps ----------------------------------------------------------------------------------

    def is_same_vote(self, old: ReplicaKey, new: ReplicaKey | None) -> bool:
        """Whether a vote is as it was; a file of a static quorum names no directories."""
        return new is not None and old.id == new.id

    def effects_of(self, node: Any, event: Event, effects: list[Effect]) -> None:
        """A pre-vote is no vote."""
        if isinstance(event, Received):
            self._hears(node, event.request, effects)

    def takes_effect(self, node: Any, effect: AdvanceHighWatermark | RoleChanged) -> None:
        """Judge a step that is about to be seen by others."""
        self.looks_at_disk(node)
        node.disk.start_offset = node.opened.log.start_offset
        if isinstance(effect, AdvanceHighWatermark):
            self.advances(node, effect.offset)
            node.known_high_watermark = effect.offset
        else:
            self.changes_role(node, effect)

    def after_turn(self, node: "QuorumNode") -> None:
        """Judge what a node has done, now that it is done."""
        if node.changes_seen == node.machine.changes and not (node.has_stepped or node.noted):
            return
        node.changes_seen = node.machine.changes
        self.looks_at_disk(node)
        if not node.up or node.replica is None:
            return
        assert node.opened is not None
        self._looks_at_names(node)
        node.disk.start_offset = node.opened.log.start_offset
        for applied in node.noted:
            self._applies(node, applied)
        node.noted.clear()
        if node.has_stepped and node.replica.driver.failure is None:
            node.has_stepped = False
            self.after_step(node)  # type: ignore[arg-type]
        self._is_bounded(node)

    def _looks_at_names(self, node: "QuorumNode") -> None:
        """A log start above 0 has its snapshot, and what is half fetched or written is bounded."""
        assert node.opened is not None
        disk, start = node.disk, node.opened.log.start_offset
        if disk.machine.name_changes == node.names_seen and start == disk.start_offset:
            return
        node.names_seen = disk.machine.name_changes
        # A fetched snapshot has its name before the log begins at its end.
        if start > 0 and not any(one.end_offset >= start for one in disk.snapshots(durable=True)):
            raise Violation("a log start above 0 has its snapshot", f"{node}: {start}")
        if disk.parts() > PARTS_MAX:
            raise Violation("half files are bounded", f"{node}: {disk.parts()}")

    def _is_bounded(self, node: "QuorumNode") -> None:
        assert node.replica is not None
        if node.replica.controller.decision_count > self.world.plan.clients * 40 + 200:
            raise Violation("pending decisions are bounded", f"{node}")

    # -- images ---------------------------------------------------------------------------------

    def _commit(self, node: Any, offset: int) -> None:
        before = len(self.committed)
        super()._commit(node, offset)
        for batch in self.committed[before:]:
            self._replay(batch)

    def _replay(self, batch: Batch) -> None:
        loader, epoch = self._loader, batch.facts.epoch
        for position, header in whole_batches(batch.payload):
            if not header.is_control:
                offset = header.base_offset
                for record in read_records(batch.payload, position):
                    loader.add(record)
                    self._tell(epoch, offset, record)
                    offset += 1
            loader.end_of_batch(Provenance(header.last_offset, epoch, header.max_timestamp))
        if loader.in_transaction:
            return
        self.reference, _ = loader.take()
        end = batch.facts.end_offset
        self._images[end] = self.reference
        self._ends.append(end)
        if len(self._ends) > IMAGES_KEPT:
            self._images.pop(self._ends.popleft())

    def _tell(self, epoch: int, offset: int, record: MetadataRecord) -> None:
        """Tell of a record once it counts: those of a transaction at its end, or never."""
        if record.name == "BeginTransactionRecord":
            self._open = []
        elif self._open is not None and record.name == "AbortTransactionRecord":
            self._open = None
        elif self._open is not None and record.name == "EndTransactionRecord":
            counted, self._open = self._open, None
            for one in counted:
                self._counts(*one)
        elif self._open is not None:
            self._open.append((epoch, offset, record))
        else:
            self._counts(epoch, offset, record)

    def _counts(self, epoch: int, offset: int, record: MetadataRecord) -> None:
        for listener in self.listeners:
            listener(epoch, offset, record)

    def _applies(self, node: "QuorumNode", applied: Applied) -> None:
        image = applied.image
        end = image.provenance.end_offset
        if max(applied.end_offset, end) > self.high_watermark:
            raise Violation(
                "no image is above the high watermark",
                f"{node}: {applied.end_offset}, {self.high_watermark}",
            )
        expected = self._images.get(end)
        if expected is None:
            if self._ends and end >= self._ends[0]:
                raise Violation("images end where a decision ends", f"{node}: {end}")
            return
        if not same_image(image, expected):
            raise Violation("images at one offset are equal", f"{node} at {end}")


def same_image(one: MetadataImage, other: MetadataImage) -> bool:
    """Whether two images say the same."""
    return one == other
