"""What must hold after every event, whatever was lost, cut, paused or crashed before.

Each rule is a sentence, and the only thing that is said when it is broken. Rules are checked where
they can break, with what the oracle itself has seen: it asks a core for its attributes, and never
believes it.

Log matching (one rule) carries the others: where two logs have a batch of one epoch at one offset,
they are equal up to there, so that to compare two logs is to compare one batch.
"""

from typing import TYPE_CHECKING

from metadata_topic.raft.effects import Effect, Persist, Report, RoleChanged
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
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import ReplicaKey
from tests.support.raft.batch_index import Batch
from tests.support.raft.errors import Violation
from tests.support.raft.model_disk import ModelDisk, StoredSnapshot
from tests.support.raft.plan import key_of

if TYPE_CHECKING:
    from tests.support.raft.sim_node import SimNode
    from tests.support.raft.world import World

PENDING_MAX_PER_NODE = 8
"""So many unanswered requests of each node may wait at another while a slow disk keeps a vote:
retries and duplicates."""
EPOCH_STEP_MAX = 1000
EPOCH_MAX = 2**31 - 2
"""The highest that is named or kept: an election after it would need one that has no int32."""


class Oracle:
    """See the module.

    Attributes:
        high_watermark: the highest that any node ever knew.
        committed: every batch below it.
        elections: how many leaders there were.
        error_causes: parts of error reports that a fault of this run has given a reason for.
    """

    def __init__(self, world: "World") -> None:
        self.world = world
        self.high_watermark = 0
        self.committed: list[Batch] = []
        self.committed_epoch_at: dict[int, int] = {}  # by the batch's base offset
        self.elections = 0
        self.error_causes: set[str] = set()
        self.lost_disks: dict[ReplicaKey, ModelDisk] = {}
        self._marks: list[tuple[int, int]] = []  # (epoch of the leader, committed up to)
        self._batches: dict[tuple[int, int], tuple[int, bytes, int]] = {}
        self._leaders: dict[int, tuple[ReplicaKey, int]] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._epochs_said: dict[ReplicaKey, int] = {}
        self._epoch_floors: dict[int, int] = {}
        self._followed: dict[int, tuple[int, int]] = {}
        self._contacts: dict[tuple[int, ReplicaKey], tuple[int, int]] = {}
        self._led_since: dict[int, int] = {}
        self._voters = tuple(key_of(node_id) for node_id in world.plan.voters)
        self._majority = len(self._voters) // 2 + 1
        self._pending_max = PENDING_MAX_PER_NODE * len(world.plan.nodes)

    def who(self, key: ReplicaKey) -> ReplicaKey:
        """A replica by the name it has here: that of its first disk for a static voter."""
        plan = self.world.plan
        return key if plan.dynamic or key.id not in plan.voters else key_of(key.id)

    def forgets(self, node: "SimNode") -> None:
        """Its disk does not know any more what it voted and which epochs it named."""
        me = self.who(node.key)
        self._epochs_said.pop(me, None)
        self._votes = {one: vote for one, vote in self._votes.items() if one[0] != me}

    # Elections

    def started(self, node: "SimNode") -> None:
        """A new life knows at least every epoch that its earlier ones have named to others."""
        self._epoch_floors[node.id] = self._epochs_said.get(self.who(node.key), 0)
        self._followed.pop(node.id, None)

    def persists(self, node: "SimNode", effect: Persist) -> None:
        """The epoch never goes back on disk, and within one epoch a vote or leader stays."""
        old, new = node.disk.election or ElectionState(), effect.election
        self._fits(node, new.epoch)
        if new.epoch < old.epoch:
            raise Violation("epochs never go back", f"{node} on disk: {old} -> {new}")
        if new.epoch == old.epoch:
            if old.voted is not None and not self.is_same_vote(old.voted, new.voted):
                raise Violation("a vote is kept", f"{node} on disk: {old} -> {new}")
            if old.leader_id not in (None, new.leader_id):
                raise Violation("one leader an epoch", f"{node} on disk: {old} -> {new}")

    def is_same_vote(self, old: ReplicaKey, new: ReplicaKey | None) -> bool:
        """Whether a vote is as it was."""
        return old == new

    def asks(self, node: "SimNode", request: Request) -> None:
        """Who asks for votes has its own on disk."""
        self._says(node, request.epoch)
        if isinstance(request, VoteRequest) and not request.pre_vote:
            self._votes_for(node, request.epoch, self.who(node.key))

    def answers(self, node: "SimNode", request: Request, response: Response) -> None:
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

    def _votes_for(self, node: "SimNode", epoch: int, candidate: ReplicaKey) -> None:
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

    def _fits(self, node: "SimNode", epoch: int) -> None:
        """Another epoch comes after this one, and both go into an int32."""
        if not 0 <= epoch <= EPOCH_MAX:
            raise Violation("epochs fit the wire", f"{node}: {epoch}")

    def reports(self, node: "SimNode", effect: Report) -> None:
        """Nobody is told to look where nothing has happened."""
        if effect.is_error and not any(cause in effect.text for cause in self.error_causes):
            raise Violation("an error that is reported has a cause", f"{node}: {effect.text}")

    def named_leader(self, node: "SimNode", event: Event) -> tuple[int, int] | None:
        """The (epoch, leader) that an event names with its address; asked before its step.

        None too where an answer names one that the node has followed already: it may have left that
        one because it does not answer.
        """
        if node.core.role not in (Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE):
            return None
        match event:
            case Received(_, BeginQuorumEpochRequest(epoch, leader_id, _, leader)):
                return None if leader is None else (epoch, leader_id)
            case Answered(number, response) if response is not None:
                said = response.standing
                named = said.epoch, said.leader_id
                is_heard = said.leader is not None and number in node.core.replica.pending
                return named if is_heard and named != self._followed.get(node.id) else None
            case _:
                return None

    def follows(
        self, node: "SimNode", named: tuple[int, int] | None, effects: list[Effect]
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

    def _says(self, node: "SimNode", epoch: int) -> None:
        self._fits(node, epoch)
        me = self.who(node.key)
        if epoch > self._epochs_said.get(me, 0):
            self._epochs_said[me] = epoch

    def changes_role(self, node: "SimNode", effect: RoleChanged) -> None:
        """A leader is the only one of its epoch, was elected, and has all that was committed."""
        self.world.tell_role(node, effect)
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
        votes = [voter for voter in self._voters if key in (voter, self._votes.get((voter, epoch)))]
        if len(votes) < self._majority:
            raise Violation("a majority of voters elects", f"{node} in {epoch} by {votes}")
        self._has_what_is_committed(node, epoch)

    def _has_what_is_committed(self, node: "SimNode", epoch: int) -> None:
        """A late answer can make a leader of an epoch that is over: it lacks what came after."""
        end = max((end for one, end in self._marks if one <= epoch), default=0)
        if not self._holds(node.disk, end):
            raise Violation(
                "a leader has all that was ever committed",
                f"{node} in {epoch} lacks something below {end}",
            )

    # The log

    def appends(self, node: "SimNode", batch: Batch) -> None:
        """An offset and an epoch name one batch everywhere, and with it all before it."""
        facts, disk = batch.facts, node.disk
        before = disk.epoch_before(disk.end_offset)
        if facts.epoch < before:
            raise Violation("epochs never fall in a log", f"{node}: {facts} after {before}")
        new = (facts.end_offset, batch.payload, before)
        old = self._batches.setdefault((facts.base_offset, facts.epoch), new)
        if old != new:
            raise Violation(
                "the same offset and epoch are the same bytes", f"{node}: {facts}: {old}, {new}"
            )

    def truncates(self, node: "SimNode", end_offset: int) -> None:
        """What is committed is never cut."""
        if not node.disk.is_boundary(end_offset):
            raise Violation("a log is cut between batches", f"{node} at {end_offset}")
        if end_offset < node.known_high_watermark:
            raise Violation(
                "no log is cut below its high watermark",
                f"{node} at {end_offset}, known {node.known_high_watermark}",
            )
        self._drops(node, end_offset)

    def installs(self, node: "SimNode", stored: StoredSnapshot) -> None:
        """A snapshot that replaces a log is of committed state, and takes nothing committed."""
        self.is_of_committed_state(node, stored)
        self._drops(node, stored.file.id.end_offset)

    def is_of_committed_state(self, node: "SimNode", stored: StoredSnapshot) -> None:
        """A snapshot ends at the high watermark at most."""
        snapshot_id = stored.file.id
        if snapshot_id.end_offset > self.high_watermark:
            raise Violation("snapshots are of committed state", f"{node}: {snapshot_id}")

    def _drops(self, node: "SimNode", end_offset: int) -> None:
        disk = node.disk
        index = disk.index_at(end_offset)
        if index == len(disk.batches):
            return
        first = disk.batches[index].facts
        if first.base_offset < self.high_watermark and (
            self.committed_epoch_at.get(first.base_offset) == first.epoch
        ):
            raise Violation("nothing committed vanishes", f"{node} drops {first}")

    def crashed(self, node: "SimNode") -> None:
        """A majority's disks hold all below the high watermark, after a crash too."""
        self._is_on_a_majority()

    # Commits

    def advances(self, node: "SimNode", offset: int) -> None:
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

    def _commit(self, node: "SimNode", offset: int) -> None:
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
        self._is_on_a_majority()
        epoch = node.core.epoch
        if self._marks and self._marks[-1][0] >= epoch:
            self._marks[-1] = (self._marks[-1][0], offset)
        else:
            self._marks.append((epoch, offset))
        for other in self.world.nodes.values():
            if other.leads:
                self._has_what_is_committed(other, other.core.epoch)

    def _is_on_a_majority(self) -> None:
        if not self.high_watermark:
            return
        disks = [self.disk_of(voter) for voter in self._voters]
        held = [
            disk
            for disk in disks
            if disk.flushed_end >= self.high_watermark and self._holds(disk, self.high_watermark)
        ]
        if len(held) < self._majority:
            raise Violation(
                "what is committed is on the disks of a majority",
                f"{self.high_watermark}, flushed {[disk.flushed_end for disk in disks]}",
            )

    def disk_of(self, voter: ReplicaKey) -> ModelDisk:
        """A voter's disk; a lost one as it was last."""
        if voter in self.lost_disks:
            return self.lost_disks[voter]
        return self.world.nodes[voter.id].disk

    def _holds(self, disk: ModelDisk, end_offset: int) -> bool:
        """Whether a disk has what is committed below `end_offset`, flushed or not."""
        if end_offset <= disk.start_offset:
            return True
        batch = disk.batch_ending_at(end_offset)
        return (
            batch is not None
            and batch.facts.end_offset == end_offset
            and self.committed_epoch_at.get(batch.facts.base_offset) == batch.facts.epoch
        )

    # All the time

    def effects_of(self, node: "SimNode", event: Event, effects: list[Effect]) -> None:
        """A pre-vote is no vote; voters are those of the log."""
        if isinstance(event, Received):
            self._hears(node, event.request, effects)
        elif isinstance(event, Started | Truncated | SnapshotInstalled):
            told, found = node.core.history.latest, node.disk.facts_at(node.disk.end_offset)
            if told != found:
                raise Violation("voters are what the log says", f"{node}: {told} for {found}")

    def _hears(self, node: "SimNode", request: Request, effects: list[Effect]) -> None:
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

    def _leads_a_majority(self, node: "SimNode") -> None:
        """A leader from which no majority has fetched for 1.5 fetch timeouts gives up."""
        now_ms = node.local_ms()
        since_ms = self._led_since[node.id]
        limit_ms = now_ms - node.config.fetch_timeout_ms * 3 // 2
        if since_ms >= limit_ms:
            return
        count = 0
        for voter in self._voters:
            epoch, at_ms = self._contacts.get((node.id, voter), (-1, -1))
            count += voter == self.who(node.key) or (epoch == node.core.epoch and at_ms >= limit_ms)
        if count < self._majority:
            raise Violation("a leader without a majority gives up", f"{node} in {node.core.epoch}")

    def after_step(self, node: "SimNode") -> None:
        """What a core believes of itself is so, and nothing in it grows without bound."""
        core, disk = node.core, node.disk
        if core.role is Role.LEADER:
            self._leads_a_majority(node)
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
        if core.parked_count > len(node.pending) or len(node.pending) > self._pending_max:
            raise Violation(
                "parked requests are bounded",
                f"{node}: {core.parked_count} parked, {len(node.pending)} unanswered",
            )
