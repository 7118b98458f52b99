"""What must hold after every event, whatever was lost, cut, paused or crashed before.

Each rule is a sentence, and the only thing that is said when it is broken. Rules are checked where
they can break, with what the oracle itself has seen: a disk by what its files say
(`mirror.LogMirror`); it asks a core for its attributes, and never believes it.

Log matching (one rule) carries the others: where two logs have a batch of one epoch at one offset,
they are equal up to there, so that to compare two logs is to compare one batch. Images are those
that the committed records give, on all nodes.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import MetadataRecord
from metadata_topic.quorum.log.batches import read_records, whole_batches
from metadata_topic.quorum.metadata_loader import Applied
from metadata_topic.raft.effects import AdvanceHighWatermark, Effect, Persist, Report, RoleChanged
from metadata_topic.raft.events import (
    Answered,
    ElectionState,
    Event,
    Received,
    SnapshotInstalled,
    Started,
    Truncated,
)
from metadata_topic.raft.messages import (
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    Request,
    Response,
    SnapshotId,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import ReplicaKey
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.mirror import Batch, LogMirror
from tests.support.quorum_world.plan import key_of
from tests.support.quorum_world.voter_rules import VoterRules, check_quorum_ms, majority

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode
    from tests.support.quorum_world.world import QuorumWorld

PENDING_MAX_PER_NODE = 8
"""So many unanswered requests of each node may wait at another while a slow disk keeps a vote:
retries and duplicates."""
EPOCH_STEP_MAX = 1000
EPOCH_MAX = 2**31 - 2
"""The highest that is named or kept: an election after it would need one that has no int32."""
IMAGES_KEPT = 4_000
PARTS_MAX = 4
"""A snapshot that is fetched, one that is written, and small files on their way to their names."""


class QuorumOracle:
    """See the module.

    Attributes:
        high_watermark: the highest that any node ever knew.
        committed: every batch below it.
        elections: how many leaders there were.
        error_causes: parts of error reports that a fault of this run has given a reason for.
        reference: the image of everything that is committed.
        listeners: told (epoch, offset, record) of each committed record that counts.
    """

    def __init__(self, world: "QuorumWorld") -> None:
        self.world = world
        self.high_watermark = 0
        self.committed: list[Batch] = []
        self.committed_epoch_at: dict[int, int] = {}  # by the batch's base offset
        self.elections = 0
        self.error_causes: set[str] = set()
        self.lost_disks: dict[ReplicaKey, LogMirror] = {}
        self._marks: list[tuple[int, int]] = []  # (epoch of the leader, committed up to)
        self._batches: dict[tuple[int, int], tuple[int, bytes, int]] = {}
        self._leaders: dict[int, tuple[ReplicaKey, int]] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._epochs_said: dict[ReplicaKey, int] = {}
        self._epoch_floors: dict[int, int] = {}
        self._followed: dict[int, tuple[int, int]] = {}
        self._contacts: dict[tuple[int, ReplicaKey], tuple[int, int]] = {}
        self._led_since: dict[int, int] = {}
        self.voters = VoterRules(world)
        self.pending_max = PENDING_MAX_PER_NODE * len(world.plan.nodes)
        self.reference: MetadataImage = EMPTY_IMAGE
        self.listeners: list[Any] = []
        self._loader = ImageLoader(EMPTY_IMAGE)
        self._images: dict[int, MetadataImage] = {0: EMPTY_IMAGE}
        self._ends: deque[int] = deque()
        self._open: list[tuple[int, int, MetadataRecord]] | None = None

    def who(self, key: ReplicaKey) -> ReplicaKey:
        """A replica by the name it has here: that of its first disk for a static voter."""
        plan = self.world.plan
        return key if plan.dynamic or key.id not in plan.voters else key_of(key.id)

    def forgets(self, node: "QuorumNode", *, is_another: bool = False) -> None:
        """Its disk does not know any more what it voted and which epochs it named.

        Where its next one is another replica, votes of this one may be on their way, and count.
        """
        me = self.who(node.key)
        self._epochs_said.pop(me, None)
        if is_another:
            return
        self._votes = {one: vote for one, vote in self._votes.items() if one[0] != me}

    @property
    def highest_epoch(self) -> int:
        """The highest epoch that any node ever named."""
        return max(self._epochs_said.values(), default=0)

    @property
    def newest_epoch(self) -> int:
        """The highest epoch that was led."""
        return max(self._leaders, default=0)

    # Elections

    def started(self, node: "QuorumNode") -> None:
        """A new life knows at least every epoch that its earlier ones have named to others."""
        self._epoch_floors[node.id] = self._epochs_said.get(self.who(node.key), 0)
        self._followed.pop(node.id, None)

    def persists(self, node: "QuorumNode", effect: Persist) -> None:
        """The epoch never goes back on disk, and within one epoch a vote or leader stays."""
        old, new = node.disk.election or ElectionState(), effect.election
        self._fits(node, new.epoch)
        if new.epoch < old.epoch:
            raise Violation("epochs never go back", f"{node} on disk: {old} -> {new}")
        if new.epoch == old.epoch:
            if old.voted is not None and not is_same_vote(old.voted, new.voted):
                raise Violation("a vote is kept", f"{node} on disk: {old} -> {new}")
            if old.leader_id not in (None, new.leader_id):
                raise Violation("one leader an epoch", f"{node} on disk: {old} -> {new}")

    def asks(self, node: "QuorumNode", request: Request) -> None:
        """Who asks for votes has its own on disk."""
        self._says(node, request.epoch)
        if isinstance(request, VoteRequest) and not request.pre_vote:
            self._votes_for(node, request.epoch, self.who(node.key))

    def answers(self, node: "QuorumNode", request: Request, response: Response) -> None:
        """Only a node that may vote grants, once an epoch, and from disk."""
        self._says(node, response.standing.epoch)
        match request, response:
            case VoteRequest(), VoteResponse(granted=True):
                if not node.config.can_vote:
                    raise Violation("observers never grant", f"{node}: {request}")
                if not request.pre_vote:
                    self._votes_for(node, request.epoch, self.who(request.candidate))
            case _, FetchResponse():
                if response.high_watermark > self.high_watermark:
                    raise Violation("only what is committed is called so", f"{node}: {response}")
            case _:
                pass

    def _votes_for(self, node: "QuorumNode", epoch: int, candidate: ReplicaKey) -> None:
        earlier = self._votes.setdefault((self.who(node.key), epoch), candidate)
        if earlier != candidate:
            raise Violation("one vote an epoch", f"{node} in {epoch}: {earlier}, {candidate}")
        election = node.disk.election or ElectionState()
        kept = election.epoch > epoch or (
            election.epoch == epoch
            and election.voted is not None
            and election.voted.id == candidate.id
        )
        if not kept:
            raise Violation("a vote is durable before it leaves", f"{node} in {epoch}: {election}")

    def _fits(self, node: "QuorumNode", epoch: int) -> None:
        """Another epoch comes after this one, and both go into an int32."""
        if not 0 <= epoch <= EPOCH_MAX:
            raise Violation("epochs fit the wire", f"{node}: {epoch}")

    def reports(self, node: "QuorumNode", effect: Report) -> None:
        """Nobody is told to look where nothing has happened."""
        if effect.is_error and not any(cause in effect.text for cause in self.error_causes):
            raise Violation("an error that is reported has a cause", f"{node}: {effect.text}")

    def named_leader(self, node: "QuorumNode", event: Event) -> tuple[int, int] | None:
        """The (epoch, leader) that an event names with its address; asked before its step.

        None too where an answer names one that the node has followed already: it may have left that
        one because it does not answer.
        """
        if node.core.role not in (Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE):
            return None
        match event:
            case Received(_, BeginQuorumEpochRequest(epoch, leader_id, _, leader)):
                return None if leader is None else (epoch, leader_id)
            case Answered(_, None | ApiVersionsResponse()):
                return None
            case Answered(number, response):
                assert response is not None
                said = response.standing
                named = said.epoch, said.leader_id
                is_heard = said.leader is not None and number in node.core.replica.pending
                return named if is_heard and named != self._followed.get(node.id) else None
            case _:
                return None

    def follows(
        self, node: "QuorumNode", named: tuple[int, int] | None, effects: list[Effect]
    ) -> None:
        """Who hears of the leader of its epoch follows it; asked after the step."""
        core = node.core
        new = [e for e in effects if isinstance(e, RoleChanged) and e.role is Role.FOLLOWER]
        for effect in new:
            assert effect.leader_id is not None
            self._followed[node.id] = effect.epoch, effect.leader_id
        is_known = named == (core.epoch, core.leader_id) and core.leader_id != node.id
        if is_known and not new:
            raise Violation("who hears of its leader follows it", f"{node}: {named}, {core.role}")

    def _says(self, node: "QuorumNode", epoch: int) -> None:
        self._fits(node, epoch)
        me = self.who(node.key)
        if epoch > self._epochs_said.get(me, 0):
            self._epochs_said[me] = epoch

    def changes_role(self, node: "QuorumNode", effect: RoleChanged) -> None:
        """A leader is the only one of its epoch, was elected, and has all that was committed."""
        if effect.role is not Role.LEADER:
            return
        epoch = effect.epoch
        self._led_since[node.id] = node.local_ms()
        key = self.who(node.key)
        me = (key, node.life)
        if epoch not in self._leaders:
            self.elections += 1
        if self._leaders.setdefault(epoch, me) != me:
            raise Violation("one leader an epoch", f"{node} in {epoch}, and {self._leaders[epoch]}")
        voters = self.voters.of(node)
        votes = [voter for voter in voters if key in (voter, self._votes.get((voter, epoch)))]
        if len(votes) < majority(voters):
            raise Violation("a majority of voters elects", f"{node} in {epoch} by {votes}")
        self.voters.elected(node, effect)
        self._has_what_is_committed(node, epoch)

    def _has_what_is_committed(self, node: "QuorumNode", epoch: int) -> None:
        """A late answer can make a leader of an epoch that is over: it lacks what came after."""
        end = max((end for one, end in self._marks if one <= epoch), default=0)
        if not self._holds(node.disk, end):
            raise Violation(
                "a leader has all that was ever committed",
                f"{node} in {epoch} lacks something below {end}",
            )

    # The log

    def looks_at_disk(self, node: Any) -> None:
        """Validate what was written since the last look."""
        disk: LogMirror = node.disk
        for batch in disk.news():
            self._validate(node, disk, batch)

    def _validate(self, node: "QuorumNode", disk: LogMirror, batch: Batch) -> None:
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

    def _led(self, node: "QuorumNode", batch: Batch) -> None:
        """Tell what a leader has just written."""
        for position, header in whole_batches(batch.payload):
            if not header.is_control:
                for record in read_records(batch.payload, position):
                    self.world.workload.brokers.appends(node, batch.facts.epoch, record)

    def replaces_log(self, node: "QuorumNode", snapshot_id: SnapshotId) -> None:
        """A fetched snapshot is of committed state, and takes nothing committed."""
        if snapshot_id.end_offset > self.high_watermark:
            self._sole_commits()
        if snapshot_id.end_offset > self.high_watermark:
            raise Violation("snapshots are of committed state", f"{node}: {snapshot_id}")
        self._drops(node, snapshot_id.end_offset)

    def _sole_commits(self) -> None:
        """What a sole voter has on its disk is committed: its start makes a snapshot of it."""
        for node in self.world.nodes.values():
            self.looks_at_disk(node)
            end, is_sole = node.disk.flushed_end, self.voters.of(node) == (self.who(node.key),)
            if is_sole and node.up and node.replica is not None and end > self.high_watermark:
                self._commit(node, end)

    def truncates(self, node: "QuorumNode", end_offset: int) -> None:
        """What is committed is never cut."""
        if not node.disk.is_boundary(end_offset):
            raise Violation("a log is cut between batches", f"{node} at {end_offset}")
        if end_offset < node.known_high_watermark:
            raise Violation(
                "no log is cut below its high watermark",
                f"{node} at {end_offset}, known {node.known_high_watermark}",
            )
        self._drops(node, end_offset)

    def _drops(self, node: "QuorumNode", end_offset: int) -> None:
        disk = node.disk
        index = disk.index_at(end_offset)
        if index == len(disk.batches):
            return
        first = disk.batches[index].facts
        if first.base_offset < self.high_watermark and (
            self.committed_epoch_at.get(first.base_offset) == first.epoch
        ):
            raise Violation("nothing committed vanishes", f"{node} drops {first}")

    def crashed(self, node: "QuorumNode") -> None:
        """A majority's disks hold all below the high watermark, after a crash too."""
        self._is_on_a_majority()

    # Commits

    def advances(self, node: "QuorumNode", offset: int) -> None:
        """The known high watermark rises; what is new below it is on the disks of a majority."""
        disk = node.disk
        if offset < node.known_high_watermark:
            raise Violation(
                "the high watermark never falls within a life",
                f"{node}: {node.known_high_watermark} -> {offset}",
            )
        if offset > disk.end_offset or not disk.is_boundary(offset):
            raise Violation("a high watermark lies within the log", f"{node}: {offset}")
        common = min(offset, self.high_watermark)
        if common > disk.start_offset and disk.is_boundary(common):
            batch = disk.batch_ending_at(common)
            assert batch is not None
            if self.committed_epoch_at.get(batch.facts.base_offset) != batch.facts.epoch:
                raise Violation("nothing committed changes", f"{node} at {common}: {batch.facts}")
        if offset > self.high_watermark:
            self._commit(node, offset)

    def _commit(self, node: "QuorumNode", offset: int) -> None:
        disk = node.disk
        new = disk.batches[disk.index_at(self.high_watermark) : disk.index_at(offset)]
        if not new or new[0].facts.base_offset != self.high_watermark:
            raise Violation("nothing committed changes", f"{node} at {offset}: {new}")
        for batch in new:
            self.committed_epoch_at[batch.facts.base_offset] = batch.facts.epoch
        self.committed.extend(new)
        self.high_watermark = offset
        if node.core.role is Role.LEADER and new[-1].facts.epoch != node.core.epoch:
            raise Violation(
                "a leader commits by an entry of its own epoch", f"{node} {offset}: {new[-1].facts}"
            )
        self.voters.commits(node, new)
        self._is_on_a_majority()
        epoch = node.core.epoch
        if self._marks and self._marks[-1][0] >= epoch:
            self._marks[-1] = (self._marks[-1][0], offset)
        else:
            self._marks.append((epoch, offset))
        for other in self.world.nodes.values():
            if other.leads:
                self._has_what_is_committed(other, other.core.epoch)
        for batch in new:
            self._replay(batch)

    def _is_on_a_majority(self) -> None:
        if not self.high_watermark:
            return
        voters = self.voters.commits_by
        disks = [self.disk_of(voter) for voter in voters]
        held = [
            disk
            for disk in disks
            if disk.flushed_end >= self.high_watermark and self._holds(disk, self.high_watermark)
        ]
        if len(held) < majority(voters):
            raise Violation(
                "what is committed is on the disks of a majority",
                f"{self.high_watermark}, flushed {[disk.flushed_end for disk in disks]}",
            )

    def disk_of(self, voter: ReplicaKey) -> LogMirror:
        """A voter's disk; a lost one as it was last."""
        if voter in self.lost_disks:
            return self.lost_disks[voter]
        return self.world.nodes[voter.id].disk

    def _holds(self, disk: LogMirror, end_offset: int) -> bool:
        """Whether a disk has what is committed below `end_offset`, flushed or not."""
        if end_offset <= disk.start_offset:
            return True
        batch = disk.batch_ending_at(end_offset)
        if (
            batch is not None
            and batch.facts.end_offset == end_offset
            and self.committed_epoch_at.get(batch.facts.base_offset) == batch.facts.epoch
        ):
            return True
        return any(one.end_offset >= end_offset for one in disk.snapshots())

    # All the time

    def sees(self, node: "QuorumNode", event: Event, effects: list[Effect]) -> None:
        """Validate a step of a core before its effects are carried out."""
        if isinstance(event, Received):
            self._hears(node, event.request, effects)
        elif isinstance(event, Started | Truncated | SnapshotInstalled):
            self.looks_at_disk(node)
            self.voters.are_known(node)
        self.voters.resigns(node, event, effects)

    def takes_effect(self, node: "QuorumNode", effect: AdvanceHighWatermark | RoleChanged) -> None:
        """Validate a step that is about to be seen by others."""
        self.looks_at_disk(node)
        node.disk.start_offset = node.opened.log.start_offset
        if isinstance(effect, AdvanceHighWatermark):
            self.advances(node, effect.offset)
            node.known_high_watermark = effect.offset
        else:
            self.changes_role(node, effect)

    def after_turn(self, node: "QuorumNode") -> None:
        """Validate what a node has done, now that it is done."""
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
            self._after_step(node)
        self._is_bounded(node)

    def _looks_at_names(self, node: "QuorumNode") -> None:
        """A log start above 0 has its snapshot, and what is half fetched or written is bounded."""
        assert node.opened is not None
        disk, start = node.disk, node.opened.log.start_offset
        if disk.machine.name_changes == node.names_seen and start == disk.start_offset:
            return
        node.names_seen = disk.machine.name_changes
        self.voters.looks_at_snapshots(node)
        # A fetched snapshot has its name before the log begins at its end.
        if start > 0 and not any(one.end_offset >= start for one in disk.snapshots(durable=True)):
            raise Violation("a log start above 0 has its snapshot", f"{node}: {start}")
        if disk.parts() > PARTS_MAX:
            raise Violation("half files are bounded", f"{node}: {disk.parts()}")

    def _is_bounded(self, node: "QuorumNode") -> None:
        assert node.replica is not None
        if node.replica.controller.decision_count > self.world.plan.clients * 40 + 200:
            raise Violation("pending decisions are bounded", f"{node}")

    def _hears(self, node: "QuorumNode", request: Request, effects: list[Effect]) -> None:
        """A pre-vote is no vote; a leader is in contact with who fetches in its epoch.

        An epoch far above its own is not taken over from a request, which can name anybody.
        """
        before = self._epoch_floors[node.id]
        if node.core.epoch > before + EPOCH_STEP_MAX:
            raise Violation("no request makes an epoch jump", f"{node}: {before}, {request}")
        if isinstance(request, VoteRequest) and request.pre_vote:
            new = next((one for one in effects if isinstance(one, Persist)), None)
            if new is not None and new.election.voted == request.candidate:
                raise Violation("a pre-vote is not persisted", f"{node}: {new}")
        elif request.epoch == node.core.epoch and isinstance(
            request, FetchRequest | FetchSnapshotRequest
        ):
            asker = self.who(request.replica)
            self._contacts[node.id, asker] = (request.epoch, node.local_ms())
            self.voters.hears(node, request)

    def _leads_a_majority(self, node: "QuorumNode") -> None:
        """A leader from which no majority has fetched for 1.5 fetch timeouts gives up."""
        long_ms = node.local_ms() - self._led_since[node.id]
        if long_ms > check_quorum_ms(node) and not self.is_heard(node):
            raise Violation("a leader without a majority gives up", f"{node} in {node.core.epoch}")

    def is_heard(self, node: "QuorumNode", more_ms: int = 0) -> bool:
        """Whether a majority has fetched from a leader within the time after which it gives up.

        Args:
            node: the leader.
            more_ms: so long before the end of that time, or sooner.
        """
        limit_ms = node.local_ms() - check_quorum_ms(node) + more_ms
        voters, count = self.voters.of(node), 0
        for voter in voters:
            epoch, at_ms = self._contacts.get((node.id, voter), (-1, -1))
            count += voter == self.who(node.key) or (epoch == node.core.epoch and at_ms >= limit_ms)
        return count >= majority(voters)

    def _after_step(self, node: "QuorumNode") -> None:
        """What a core believes of itself is so, and nothing in it grows without bound."""
        core, disk = node.core, node.disk
        if core.role is Role.LEADER:
            self._leads_a_majority(node)
            self.voters.leads(node)
        if core.epoch < self._epoch_floors[node.id]:
            raise Violation("epochs never go back", f"{node}: {core.epoch}")
        self._epoch_floors[node.id] = core.epoch
        if core.high_watermark > self.high_watermark:
            raise Violation("only what is committed is called so", f"{node}: {core.high_watermark}")
        log = core.log
        if node.truncating is None and node.installing is None:
            if log.end_offset != disk.end_offset or log.start_offset != disk.start_offset:
                raise Violation(
                    "the core knows its log",
                    f"{node}: [{log.start_offset}, {log.end_offset}) for "
                    f"[{disk.start_offset}, {disk.end_offset})",
                )
            if log.flushed_end > disk.flushed_end:
                raise Violation("flushed is what is on disk", f"{node}: {log.flushed_end}")
            self.voters.are_known(node)
        if core.parked_count > len(node.pending) or len(node.pending) > self.pending_max:
            raise Violation(
                "parked requests are bounded",
                f"{node}: {core.parked_count} parked, {len(node.pending)} unanswered",
            )

    # Images

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
        if image != expected:
            raise Violation("images at one offset are equal", f"{node} at {end}")


def is_same_vote(old: ReplicaKey, new: ReplicaKey | None) -> bool:
    """Whether a vote is as it was; a file of a static quorum names no directories."""
    return new is not None and old.id == new.id
