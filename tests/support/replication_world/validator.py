"""What must hold of replicated partitions after every event; the promises of the model.

A leader *tells* when its high watermark moves: from then on that is what was committed. Of each
record the copies are counted that were lost: with their disk, or by a power cut before they were
durable. Promises are about records of which fewer than min.insync.replicas copies are lost; after
an unclean election what the new leader has is what counts. `tests/model/replication/README.md` has
the same promises, and the finding that is let pass here: F2 (the last known leader is elected, and
both the others and it have ended uncleanly).

Nothing is looked at twice: a copy is compared with what was told from where it agreed before.
"""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kafka_protocol.types import TopicPartition
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import NO_LEADER, RECOVERING, PartitionImage
from metadata_topic.image.replay_topics import merge
from tests.support.quorum_world.errors import Violation
from tests.support.replication_world.copies import Copy, Stamp, name_of
from tests.support.replication_world.move_rules import is_clean_end
from tests.support.replication_world.plan import DURABLE, is_tiered

if TYPE_CHECKING:
    from broker.replica.partition import Partition
    from tests.support.quorum_world.node import QuorumNode
    from tests.support.replication_world.node import ReplicaNode
    from tests.support.replication_world.world import ReplicationWorld

ALL = 1 << 62


@dataclass(eq=False, repr=False)
class Told:
    """What is known of one partition.

    Attributes:
        batches: what was told to be committed, in order; those below `start_max` may be missing.
        end: of them (exclusive).
        start_max: the highest log start that a leader had.
        weak_from: from this offset on too many copies are lost.
        since: the leader epoch of the last unclean election; 0: none.
        is_pending: its leader has not begun yet.
        rebases: how often what counts was given up.
        lost: how often a copy of a batch was lost, by (base offset, epoch).
        hurts: unclean ends of its brokers since it last had enough members in sync.
        image: as committed last.
        gave_up: something that was told may be gone.
        key: topic id and number.
        is_tiered: what lies below the first segment of a copy may be in the store.
        asked_start: up to where clients have asked to delete records.
        is_removed: its topic is deleted; nothing is validated any more.
        is_restored: what it gave up since was begun again by a person.
        restored_to: where it was begun again last; what is below is the store's alone.
        deleted_to: up to where that was answered.
        unclean_epochs: of its unclean elections.
    """

    name: TopicPartition
    image: PartitionImage
    needed: int
    batches: list[Stamp] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    end: int = 0
    start_max: int = 0
    weak_from: int = ALL
    since: int = 0
    is_pending: bool = False
    rebases: int = 0
    lost: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    hurts: int = 0
    written: dict[tuple[int, int], tuple[int, Stamp | None]] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    copies: dict[int, Copy] = field(default_factory=dict)
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    gave_up: bool = False
    key: tuple[bytes, int] = (b"", -1)
    is_tiered: bool = False
    asked_start: int = 0
    is_removed: bool = False
    is_restored: bool = False
    restored_to: int = 0

    @property
    def is_hurt(self) -> bool:
        """Whether something that was told may not be readable."""
        return self.gave_up and not self.is_restored

    @property
    def readable_end(self) -> int:
        """Where the last batch that was told ends; a restored log may begin above."""
        return self.batches[-1].end if self.batches else 0

    def has_between(self, first: int, base: int) -> bool:
        """Whether a batch that was told reaches above `first`, and begins below `base`."""
        place = bisect_left(self.bases, base) - 1
        return place >= 0 and self.batches[place].end > first

    deleted_to: int = 0
    unclean_epochs: list[int] = field(default_factory=list)

    @property
    def is_in_doubt(self) -> bool:
        """Whether replicas may rightly know of other records than were told."""
        is_weak = self.weak_from < self.end or self.is_removed or self.restored_to > 0
        return self.is_pending or self.since > 0 or is_weak

    def has(self, base: int, epoch: int, crc: int) -> bool:
        """Whether a batch was told."""
        place = bisect_left(self.bases, base)
        if place >= len(self.batches):
            return False
        found = self.batches[place]
        return (found.base, found.epoch, found.crc) == (base, epoch, crc)

    def __repr__(self) -> str:
        one = self.image
        return (
            f"{self.name} leader {one.leader} epoch {one.leader_epoch} isr {one.isr} elr {one.elr} "
            f"last known {one.last_known_elr} told to {self.end}"
        )

    def cut(self, end: int) -> None:
        """Forget what was told from a batch's base on."""
        while self.batches and self.batches[-1].end > end:
            gone = self.batches.pop()
            self.bases.pop()
            self.sequences.pop((gone.producer_id, gone.sequence), None)
        self.end = self.batches[-1].end if self.batches else min(self.end, end)
        for copy in self.copies.values():
            copy.agrees_to = min(copy.agrees_to, self.end)


class Validator:
    """See the module.

    Attributes:
        partitions: by topic id and number.
        removed: ids of topics that were deleted.
        told, elections, unclean, weak: how many batches were told, elections there were, unclean
            ones of them, and how often too many copies were lost.
        allows_unclean: somebody has asked for unclean leaders.
    """

    def __init__(self, world: "ReplicationWorld") -> None:
        self.world = world
        self.partitions: dict[tuple[bytes, int], Told] = {}
        self.by_name: dict[TopicPartition, Told] = {}
        self.removed: dict[bytes, None] = {}
        self.told = self.elections = self.unclean = self.weak = 0
        self.allows_unclean = False
        self._has_new = False
        self._changed: dict[Told, None] = {}
        self._hurt: dict[int, int] = {}  # by broker: of the newest power cut or lost disk
        self._hurts = 0
        self._lives: dict[bytes, int] = {}
        self._due: dict[Told, None] = {}
        self._marks: dict[Any, tuple[int, int, bool, int]] = {}
        self._seen: dict[int, int] = {}
        world.oracle.listeners.append(self._committed)

    # -- lives and losses

    def opens(self, node: "ReplicaNode", incarnation_id: bytes) -> None:
        """A broker has opened its logs, and is about to say how its last life ended."""
        self._lives[incarnation_id] = self._hurt.get(node.id, 0)

    def loses_power(self, node: "ReplicaNode") -> None:
        """Called before the cut: what is not durable counts as lost, whatever is left of it."""
        for told in self.partitions.values():
            copy = told.copies.get(node.id)
            if copy is not None:
                self._look_at_copy(told, node, copy)
                self._loses(told, node, copy, copy.durable_end)
        self._hurts += 1
        self._hurt[node.id] = self._hurts

    def loses_logs(self, node: "ReplicaNode") -> None:
        """Called before its disk is another."""
        for told in self.partitions.values():
            copy = told.copies.get(node.id)
            if copy is not None:
                self._look_at_copy(told, node, copy)
                self._loses(told, node, copy, 0)
        self._hurts += 1
        self._hurt[node.id] = self._hurts

    def _loses(self, told: Told, node: "ReplicaNode", copy: Copy, kept: int) -> None:
        if node.id in told.image.replicas:
            told.hurts += 1
            self.counts_lost(told, copy, kept)

    def counts_lost(self, told: Told, copy: Copy, kept: int) -> None:
        """What a replica has from an offset on counts no more."""
        for stamp in copy.batches[copy.index_at(kept) :]:
            key = stamp.base, stamp.epoch
            told.lost[key] += 1
            if told.lost[key] >= told.needed and stamp.base < told.weak_from:
                told.weak_from, told.gave_up, told.is_restored = stamp.base, True, False
                self.weak += 1
        self._is_due(told)

    def is_hurt(self, node_id: int) -> bool:
        """Whether a broker ended uncleanly, and is not registered again."""
        return node_id in self._hurt

    # -- what is committed in the metadata

    def _committed(self, epoch: int, offset: int, record: Any) -> None:
        value = record.value
        if record.name == "PartitionRecord":
            self._has_new = True
        elif record.name == "PartitionChangeRecord":
            told = self.partitions.get((value.topic_id, value.partition_id))
            if told is not None:
                self._changes(told, merge(told.image, value))
        elif record.name == "RemoveTopicRecord":
            self._removes(value.topic_id)
        elif record.name == "ClearElrRecord":
            for told in self.partitions.values():
                if value.topic_name in ("", told.name.topic):
                    told.image = replace(told.image, elr=(), last_known_elr=())
        elif record.name == "RegisterBrokerRecord":
            hurt = self._hurt.get(value.broker_id)
            if hurt is not None and self._lives.get(value.incarnation_id) == hurt:
                del self._hurt[value.broker_id]
                for told in self.partitions.values():
                    self._is_due(told)

    def _removes(self, topic_id: bytes) -> None:
        self.removed[topic_id] = None
        for key in [key for key in self.partitions if key[0] == topic_id]:
            told = self.partitions.pop(key)
            told.is_removed = True
            self._due.pop(told, None)
            self._changed.pop(told, None)
            self.world.workload.data.forget(told.name.topic)

    def _look_at_metadata(self) -> None:
        image = self.world.oracle.reference
        if self._has_new:
            self._has_new = False
            for topic in image.topics_by_id.values():
                for index, partition in topic.partitions.items():
                    if (topic.id, index) not in self.partitions:
                        self._begins(topic.id, topic.name, index, partition, image)
        if self._changed:
            changed, self._changed = self._changed, {}
            for told in changed:
                self._is_well_formed(told, image)

    def _begins(
        self, topic_id: bytes, topic: str, index: int, partition: PartitionImage, image: Any
    ) -> Told:
        config = dict(image.topic_config(topic))
        minimum = int(config.get("min.insync.replicas", "1"))
        name = TopicPartition(topic, index)
        told = Told(name, partition, min(minimum, len(partition.replicas)))
        told.key, told.is_tiered = (topic_id, index), is_tiered(topic)
        told.hurts = sum(one in self._hurt for one in partition.replicas)
        if len(partition.isr) < told.needed:
            told.hurts = told.needed  # its only member may end uncleanly
        for replica in partition.replicas:
            told.copies[replica] = Copy(self.world.nodes[replica].machine, name_of(topic, index))
        self.partitions[topic_id, index] = self.by_name[name] = told
        self._is_due(told)
        return told

    def _changes(self, told: Told, new: PartitionImage) -> None:
        old, told.image = told.image, new
        for replica in {*new.replicas} - told.copies.keys():
            machine = self.world.nodes[replica].machine
            told.copies[replica] = Copy(machine, name_of(*told.name))
        self.world.move_rules.changes(told, old, new)
        self._is_due(told)
        self._changed[told] = None
        self.world.saw(f"{told.name} {new.leader} {new.leader_epoch} {new.isr} {new.elr}")
        if len(new.isr) >= told.needed and new.leader in old.isr:
            told.hurts = sum(one in self._hurt for one in new.replicas)
        if new.unclean_epoch > old.unclean_epoch:
            told.unclean_epochs.append(new.unclean_epoch)
        if new.leader in (old.leader, NO_LEADER):
            return
        self.elections += 1
        if new.leader in old.isr or new.leader in old.elr or is_clean_end(old, new):
            return
        if new.leader in old.last_known_elr and told.hurts < told.needed:
            self._breaks("an eligible replica leads while one is left", told, f"before: {old}")
        self.unclean += 1
        self.world.move_rules.is_elected_uncleanly(told, new)
        if not self._may_be_unclean(told) and new.leader not in old.last_known_elr:
            self._breaks("an unclean leader is elected where the topic allows it", told, f"{old}")
        told.since, told.is_pending, told.gave_up = new.leader_epoch, True, True
        told.is_restored = False
        told.rebases += 1
        for key in [key for key in told.written if key[1] >= new.leader_epoch]:
            self._breaks("one leader an epoch", told, f"{key} was written before")

    def _may_be_unclean(self, told: Told) -> bool:
        config = self.world.oracle.reference.topic_config(told.name.topic)
        enabled = dict(config).get("unclean.leader.election.enable") == "true"
        return enabled or self.allows_unclean

    def _is_well_formed(self, told: Told, image: MetadataImage) -> None:
        one = told.image
        if one.leader == NO_LEADER:
            return
        if one.leader not in one.isr:
            self._breaks("the leader is in the ISR", told)
        if one.leader_recovery_state == RECOVERING and len(one.isr) > 1:
            self._breaks("nobody joins while the leader recovers", told)
        for member in one.isr:
            broker = image.brokers.get(member)
            if broker is None or broker.fenced:
                self._breaks("all in the ISR are active", told, f"{member}: {broker}")

    # -- what a node has done

    def after_turn(self, node: "QuorumNode | None") -> None:
        """Validate what has happened."""
        self._look_at_metadata()
        if node is not None:
            self._look_at(node)  # type: ignore[arg-type]
        else:
            for one in self.world.brokers:
                self._look_at(one)  # type: ignore[arg-type]
        if self._due:
            due, self._due = self._due, {}
            for told in due:
                self._validate(told)

    def _is_due(self, told: Told) -> None:
        self._due[told] = None

    def _look_at(self, node: "ReplicaNode") -> None:
        if node.machine.changes != self._seen.get(node.id):
            self._seen[node.id] = node.machine.changes
            for told in self.partitions.values():
                copy = told.copies.get(node.id)
                if copy is not None:
                    self._look_at_copy(told, node, copy)
        broker = node.broker
        if broker is None or broker.replicas is None:
            return
        for partition in broker.replicas.partitions.values():
            mark = (
                partition.log.high_watermark,
                partition.leader_epoch,
                partition.is_leader,
                partition.log.log_start_offset,
            )
            if self._marks.get(partition) != mark:
                self._marks[partition] = mark
                told = self.partitions.get((partition.topic_id, partition.partition))
                if told is not None:
                    self._moved(told, node, partition)

    def _look_at_copy(self, told: Told, node: "ReplicaNode", copy: Copy) -> None:
        start, batches = copy.start, copy.batches
        new, has_less = copy.look()
        self.world.move_rules.looks(told, node, copy)
        if told.is_tiered and copy.start > start:
            left = [one for one in batches if one.base < copy.start]
            self.world.tier_validator.leaves(told, node, left)
            self._agree(told, copy)
        if has_less:
            copy.agrees_to = min(copy.agrees_to, copy.end)
            self._agree(told, copy)
            self._is_due(told)
        if not new:
            return
        first = len(copy.batches) - new
        before = copy.batches[first - 1] if first else None
        for stamp in copy.batches[first:]:
            key = stamp.base, stamp.epoch
            known = told.written.get(key)
            if known is None:
                told.written[key] = stamp.crc, before
            elif known[0] != stamp.crc:
                self._breaks("an offset is written once an epoch", told, f"{node}: {stamp}")
            elif before is not None and known[1] is None:
                told.written[key] = stamp.crc, before
            elif before is None or before.end <= told.start_max:
                pass  # deleted: a leader whose chain begins there compares nothing below
            elif known[1] != before:
                what = f"{node}: before {stamp} {before}, elsewhere {known[1]}"
                self._breaks("logs that have a batch agree before it", told, what)
            if before is not None and before.epoch > stamp.epoch:
                self._breaks("epochs never fall", told, f"{node}: {before}, {stamp}")
            before = stamp
        self.world.saw(f"{node.id} {told.name} {copy.end}")
        self._agree(told, copy)

    def _agree(self, told: Told, copy: Copy) -> None:
        """Compare a copy with what was told, from where it agreed."""
        at = copy.agrees_to
        if at < copy.start <= told.end:
            at = copy.start  # what is below was deleted, or is missing: see `_validate`
        if at < told.start_max <= copy.end:
            at = told.start_max  # what is below was deleted
        if told.bases and at < told.bases[0] <= copy.end:
            at = told.bases[0]  # an uncleanly elected leader began there: nothing below counts
        batches, others = copy.batches, told.batches
        mine, theirs = copy.index_at(at), bisect_left(told.bases, at)
        if mine and batches[mine - 1].end > at:
            mine -= 1  # a log that began within a batch has the whole of it since
            theirs -= theirs > 0 and others[theirs - 1].end > at
        while mine < len(batches) and theirs < len(others) and batches[mine] == others[theirs]:
            at = batches[mine].end
            mine, theirs = mine + 1, theirs + 1
        copy.agrees_to = at

    # -- what leaders tell

    def _moved(self, told: Told, node: "ReplicaNode", partition: "Partition") -> None:
        """Watermark, role or log start of a replica that serves are others."""
        epoch, mark = partition.leader_epoch, partition.log.high_watermark
        copy = told.copies[node.id]
        if partition.is_leader:
            known = told.leaders.setdefault(epoch, node.id)
            if known != node.id:
                self._breaks("one leader an epoch", told, f"{node} and {known} in {epoch}")
            if epoch < told.since:
                return
            if told.is_pending:
                self._begins_uncleanly(told, copy)
            self._tells(told, node, copy, mark)
            told.start_max = max(told.start_max, partition.log.log_start_offset)
            if told.is_tiered:
                self.world.tier_validator.begins_at(told, node, partition.log.log_start_offset)
            followers = partition.followers
            if (
                followers is not None
                and followers.is_watermark_settled
                and epoch == told.image.leader_epoch
                and mark < told.end > told.restored_to
                and told.weak_from >= told.end
            ):
                what = f"{node} in {epoch} says {mark}"
                self._breaks("a leader that answers knows all that was told", told, what)
        elif not told.since and min(mark, told.weak_from) > max(copy.agrees_to, copy.start):
            what = f"{node} to {mark}, agrees to {copy.agrees_to}"
            self._breaks("logs agree below the watermark", told, what)

    def _begins_uncleanly(self, told: Told, copy: Copy) -> None:
        """What the new leader has is what counts from now on."""
        told.is_pending = False
        self._gives_up(told, copy)

    def _gives_up(self, told: Told, copy: Copy) -> None:
        told.cut(min(copy.agrees_to, told.end))
        told.weak_from = ALL
        told.lost.clear()
        told.rebases += 1
        self._is_due(told)

    def restores(self, told: Told, begin: int, end: int) -> None:
        """A person begins it again, with new records from `end` on: the store's count below.

        From `begin`, where its last segment ends, a batch without records stands for what is lost.
        """
        tier_validator = self.world.tier_validator
        proved = tier_validator.proved_end(told)
        if end < proved:
            self._breaks("no offset that is proved is given again", told, f"{end}, {proved}")
        told.batches = [
            one for one in told.batches if one.end <= begin and tier_validator.holds(told, one)
        ]
        told.bases = [one.base for one in told.batches]
        told.sequences.clear()
        told.end, told.restored_to, told.weak_from, told.is_pending = begin, end, ALL, False
        told.is_restored = told.gave_up = True
        told.lost.clear()
        told.rebases += 1
        for copy in told.copies.values():
            copy.agrees_to = min(copy.agrees_to, begin)
        self.world.saw(f"{told.name} is restored at {end}")
        self._is_due(told)

    def _tells(self, told: Told, node: "ReplicaNode", copy: Copy, mark: int) -> None:
        if mark <= told.end:
            if min(mark, told.weak_from) > max(copy.agrees_to, copy.start):
                what = f"{node} to {mark}, agrees to {copy.agrees_to}"
                self._breaks("nothing that was told changes", told, what)
            return
        if copy.agrees_to < told.end:
            if told.weak_from >= told.end and copy.start < told.end:
                what = f"{node} tells to {mark}, agrees to {copy.agrees_to}"
                self._breaks("nothing that was told changes", told, what)
            told.cut(min(copy.agrees_to, told.end))
            told.rebases += 1
        place = copy.index_at(told.end)
        while place < len(copy.batches) and copy.batches[place].end <= mark:
            stamp = copy.batches[place]
            place += 1
            told.batches.append(stamp)
            told.bases.append(stamp.base)
            told.end = stamp.end
            self.told += 1
            if stamp.producer_id >= 0:
                key = stamp.producer_id, stamp.sequence
                first = told.sequences.setdefault(key, stamp.base)
                # A new replica knows nothing of a batch below the log start, as in Kafka.
                if first != stamp.base and first >= told.start_max:
                    self._breaks("a batch of a producer is committed once", told, f"{stamp}")
        if told.name.topic == DURABLE:
            self._is_on_disks(told, mark)
        if told.end < mark and mark > copy.end:
            self._breaks("a watermark is at most the log end", told, f"{node}: {mark}")
        self.world.saw(f"{node.id} tells {told.name} {mark}")
        self._is_due(told)
        for one in told.copies.values():
            self._agree(told, one)

    def _is_on_disks(self, told: Told, mark: int) -> None:
        """A rack that loses its power takes nothing of a durable topic that was told."""
        ends = {one: told.copies[one].durable_end for one in told.image.replicas}
        if sum(end >= mark for end in ends.values()) < told.needed:
            self._breaks("what is told of a durable topic is on disks", told, f"{mark} of {ends}")

    # -- members have what was told

    def _validate(self, told: Told) -> None:
        image = told.image
        must = min(told.end, told.weak_from)
        is_whole = len(image.isr) >= told.needed
        for member in (*image.isr, *image.elr):
            copy = told.copies[member]
            if member in self._hurt:
                is_whole = False
                continue
            # What is below was deleted, or is in the store alone.
            has = max(copy.agrees_to, told.start_max, told.restored_to)
            lacks = has < must or (copy.start > told.start_max and not told.is_tiered)
            if lacks and not told.is_pending:
                kind = "ISR" if member in image.isr else "ELR"
                what = f"n{member} of the {kind} from {copy.start} agrees to {copy.agrees_to}"
                self._breaks("members have all that was told", told, f"{what} of {must}")
            if told.is_tiered:
                self.world.replica_rules.validate_member(told, member)
            if member in image.isr and has < told.end:
                is_whole = False
        if is_whole and not told.is_pending and (told.lost or told.weak_from < ALL):
            told.lost.clear()
            told.weak_from = ALL

    # -- what clients hear

    def acknowledges(self, told: Told, rebases: int, offset: int, crc: int) -> None:
        """A batch was acknowledged with acks=all at an offset."""
        if rebases != told.rebases or offset >= told.weak_from or offset < told.start_max:
            return
        if told.is_removed:
            return
        place = bisect_left(told.bases, offset)
        found = told.batches[place] if place < len(told.batches) else None
        if found is None or (found.base, found.crc) != (offset, crc):
            self._breaks("what is acknowledged is committed", told, f"{offset} {crc:x}: {found}")

    def deletes(self, told: Told, log_start: int) -> None:
        """DeleteRecords was answered: nobody who may lead begins below."""
        told.deleted_to = max(told.deleted_to, log_start)
        for member in (*told.image.isr, *told.image.elr) if not told.is_removed else ():
            copy = told.copies[member]
            kept = self.world.nodes[member].kept_log_start(told.name)
            if member in self._hurt or kept is None or told.is_pending:
                continue
            begins = kept if told.is_tiered else max(kept, copy.start)
            if begins < log_start:
                self._breaks("what was deleted stays deleted", told, f"n{member} begins at {kept}")

    def _breaks(self, rule: str, told: Told, what: str = "") -> None:
        raise Violation(rule, f"{told}: {what}")
