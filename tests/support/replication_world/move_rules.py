"""What must hold of partitions whose replicas are changed, and of replicas that leave.

What was told is validated as ever; here stands who may leave when, and what may come of a move:

* replicas that were there before a move leave when all that stay are in sync, in no other way;
* what is there behind a move is what somebody asked for, or what was there before it;
* a replica that left is not served, and its files go only on an image that says so;
* one that is being added, which may have nothing yet, is not elected uncleanly;
* a new replica of a tiered partition has nothing that no other has on its disk.

A move that is cancelled gives up replicas in sync, as in Kafka: where fewer are left than
min.insync.replicas, what they had counts as lost with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from metadata_topic.image.model import RECOVERING, PartitionImage
from tests.support.quorum_world.errors import Violation

if TYPE_CHECKING:
    from tests.support.replication_world.copies import Copy
    from tests.support.replication_world.node import ReplicaNode
    from tests.support.replication_world.validator import Told
    from tests.support.replication_world.world import ReplicationWorld

Replicas = tuple[int, ...]


@dataclass
class Moved:
    """What is known of one partition.

    Attributes:
        asked: replicas that somebody has asked for, at any time.
        is_cancel_asked: somebody has cancelled a move, at any time.
        targets: replicas that the metadata have had behind a move, or as its aim.
        rest: replicas when the first of the moves that follow each other began.
        left: the partition epoch in which a broker left last, until it serves it again.
        lives: in which life of a broker its files were seen last.
        floors: the first offset that any disk had when a broker became a replica, with nothing.
    """

    asked: set[Replicas] = field(default_factory=set)
    is_cancel_asked: bool = False
    targets: set[Replicas] = field(default_factory=set)
    rest: frozenset[int] = frozenset()
    left: dict[int, int] = field(default_factory=dict)
    lives: dict[int, int] = field(default_factory=dict)
    floors: dict[int, int] = field(default_factory=dict)


class MoveRules:
    """See the module.

    Attributes:
        begun, finished, cancelled: how many moves.
        gone: replicas whose files went.
        begun_above: replicas of tiered partitions that joined without what was remote alone.
    """

    def __init__(self, world: "ReplicationWorld") -> None:
        self.world = world
        self.begun = self.finished = self.cancelled = self.gone = self.begun_above = 0
        self._moved: dict[Told, Moved] = {}
        self._images: dict[int, tuple[object, int]] = {}

    def _of(self, told: "Told") -> Moved:
        return self._moved.setdefault(told, Moved())

    # -- what is asked

    def asks(self, told: "Told", replicas: Sequence[int] | None) -> None:
        """Somebody asks for these replicas; None: for those of before."""
        moved = self._of(told)
        if replicas is None:
            moved.is_cancel_asked = True
        else:
            moved.asked.add(tuple(replicas))

    def is_answered(self, told: "Told", replicas: Sequence[int] | None) -> None:
        """It was answered that it is done."""
        targets = self._of(told).targets | {settled(told.image)}
        if replicas is not None and not told.is_removed and tuple(replicas) not in targets:
            self._breaks("a move that is answered is committed", told, f"{replicas}")

    # -- what is committed

    def changes(self, told: "Told", old: PartitionImage, new: PartitionImage) -> None:
        """A partition is another."""
        if not set(new.isr + new.elr + new.adding + new.removing) <= set(new.replicas):
            self._breaks("only replicas are members, or come and go", told, f"{new}")
        if new.replicas != old.replicas or settled(new) != settled(old):
            self._moves(told, old, new)
        self._joins(told, old, new)

    def _moves(self, told: "Told", old: PartitionImage, new: PartitionImage) -> None:
        moved = self._of(told)
        moved.targets |= {settled(old), settled(new)}
        are_in_sync = set(new.isr) == set(new.replicas)
        gone = [one for one in old.replicas if one not in new.replicas]
        was_moved = bool(old.adding or old.removing)
        if not was_moved:
            moved.rest = frozenset(old.replicas)
        if new.adding or new.removing:
            self.begun += 1
            self._was_asked(told, settled(new))
        elif moved.is_cancel_asked and new.replicas == without(old, old.adding):
            self.cancelled += 1
            if set(new.replicas) != moved.rest:
                self._breaks("a cancelled move leaves what was before it", told, f"{old} {new}")
            self._gives_up(told, gone, new)
        elif moved.rest == {*old.replicas} == {*new.replicas}:
            self._was_asked(told, new.replicas)  # as before, or in another order
        else:
            self.finished += 1
            if new.replicas != settled(old):
                self._was_asked(told, new.replicas)
            if not are_in_sync:
                self._breaks("a move ends when all that stay are in sync", told, f"{old} {new}")
        if set(gone) - {*old.adding} and not are_in_sync:
            self._breaks("replicas leave when all that stay are in sync", told, f"{old} {new}")
        self._leave(told, gone, new)
        if told.is_tiered:
            self._come(told, [one for one in new.replicas if one not in old.replicas])

    def _was_asked(self, told: "Told", replicas: Replicas) -> None:
        if replicas not in self._of(told).asked:
            self._breaks("replicas are those that were asked for", told, f"{replicas}")

    def _leave(self, told: "Told", gone: Sequence[int], new: PartitionImage) -> None:
        moved = self._of(told)
        for one in gone:
            moved.floors.pop(one, None)
            moved.left[one] = new.partition_epoch

    def _come(self, told: "Told", new: Sequence[int]) -> None:
        moved = self._of(told)
        starts = [copy.start for copy in told.copies.values() if copy.has_files]
        for one in new:
            if one not in moved.lives:
                moved.floors[one] = min(starts, default=0)

    def _gives_up(self, told: "Told", gone: Sequence[int], new: PartitionImage) -> None:
        if len(new.isr) < told.needed:
            for one in gone:
                self.world.validator.counts_lost(told, told.copies[one], 0)

    def _joins(self, told: "Told", old: PartitionImage, new: PartitionImage) -> None:
        """Those that join the ISR have begun at what the leader had on its disk, or above."""
        floors = self._of(told).floors
        for one in new.isr:
            floor = floors.pop(one, 0) if one not in old.isr else 0
            if floor and not told.is_in_doubt:
                self.begun_above += 1
                start = told.copies[one].start
                if start < floor:
                    what = f"n{one} begins at {start}, all others at {floor} or above"
                    self._breaks("a new replica has the local tail alone", told, what)

    # -- what is on disks, and served

    def looks(self, told: "Told", node: "ReplicaNode", copy: "Copy") -> None:
        """The files of a replica may be others."""
        if not copy.has_files and told not in self._moved:
            return
        moved = self._of(told)
        if copy.has_files:
            moved.lives[node.id] = node.life
            if node.id in moved.left and self._is_back(told, node):
                del moved.left[node.id]
            return
        life = moved.lives.pop(node.id, None)
        if life is None:
            return
        self.gone += 1
        left = moved.left.get(node.id)
        broker = node.broker
        replicas = None if broker is None else broker.replicas
        if life != node.life or not node.up or replicas is None:
            return  # its disk is another
        hosted = replicas.partitions.get(told.name)
        if hosted is not None and hosted.log.lease.is_leased:
            moved.lives[node.id] = life  # another log takes its place
            self.gone -= 1
            return
        known = self._image_of(told, node)
        if left is None or (known is not None and known.partition_epoch < left):
            what = f"{node} has deleted it, knows {known}, left in {left}"
            self._breaks("files continue an image that says so", told, what)

    def _is_back(self, told: "Told", node: "ReplicaNode") -> bool:
        """Whether a broker that left serves it, and has carried out all that it was told."""
        replicas = None if node.broker is None else node.broker.replicas
        if replicas is None or replicas.hosting.is_being_notified or replicas.hosting.backlog:
            return False
        known = self._image_of(told, node)
        if known is None or known.partition_epoch <= self._of(told).left[node.id]:
            return False
        return node.id in known.replicas and told.name in replicas.partitions

    def _image_of(self, told: "Told", node: "ReplicaNode") -> PartitionImage | None:
        topic_id, number = told.key
        topic = node.metadata.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(number)

    def look_at(self, node: "ReplicaNode") -> None:
        """Look at what a broker serves, where its image or that is another."""
        replicas = None if node.broker is None else node.broker.replicas
        if replicas is None or replicas.hosting.is_being_notified:
            return
        image = node.metadata.image
        seen: tuple[object, int] = image, len(replicas.partitions)
        if self._images.get(node.id) == seen:
            return
        self._images[node.id] = seen
        for name, partition in replicas.partitions.items():
            topic = image.topics_by_id.get(partition.topic_id)
            found = None if topic is None else topic.partitions.get(partition.partition)
            if found is None or node.id not in found.replicas:
                what = f"{node} serves {name}, and knows {found}"
                raise Violation("a replica that left is not served", what)

    def is_over(self, told: "Told") -> bool:
        """Whether no move continues, and those that left have nothing any more."""
        image = told.image
        others = [one for one in told.copies if one not in image.replicas]
        return (
            not image.adding
            and not image.removing
            and not any(told.copies[one].has_files for one in others)
        )

    def is_elected_uncleanly(self, told: "Told", new: PartitionImage) -> None:
        """An election took one that may lack records; an operator may order that of any."""
        if new.leader in new.adding and not self.world.validator.allows_unclean:
            self._breaks("one that is being added is not elected uncleanly", told, f"{new}")

    def _breaks(self, rule: str, told: "Told", what: str) -> None:
        raise Violation(rule, f"{told}: {what}")


def settled(image: PartitionImage) -> Replicas:
    """The replicas that it shall have."""
    return without(image, image.removing)


def without(image: PartitionImage, those: Sequence[int]) -> Replicas:
    """Its replicas without some."""
    return tuple(one for one in image.replicas if one not in those)


def is_clean_end(old: PartitionImage, new: PartitionImage) -> bool:
    """Whether a move ended with a leader that joined by the same change: all are in sync."""
    was_moved = bool(old.adding or old.removing)
    return was_moved and not new.adding and not new.removing and not is_unclean(new)


def is_unclean(image: Any) -> bool:
    """Whether its leader was elected uncleanly."""
    return bool(image.leader_recovery_state == RECOVERING)
