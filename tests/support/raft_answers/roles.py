"""Bring our core into the role and the facts of a recorded controller, by events alone."""

from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.primitives import uuid_from_text
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.effects import Effect, FlushLog, Persist, Send, WakeAt
from metadata_topic.raft.events import (
    Answered,
    ElectionState,
    Event,
    Flushed,
    Persisted,
    Proposed,
    Received,
    Started,
    Tick,
)
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import (
    BatchFacts,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    Node,
    Request,
    Response,
    SnapshotId,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from tests.support.raft_answers.facts import ASKED, OTHER_DIRECTORY, directory_of

HOUR_MS = 3_600_000
SNAPSHOT_BYTES = 500
NODES = {i: Node(i, "127.0.0.1", 9090 + i) for i in (1, 2, 3)}
Row = dict[str, Any]


class DrivenCore:
    """A core whose disk is at once done with everything."""

    def __init__(self, key: ReplicaKey, config: RaftConfig) -> None:
        self.core = RaftCore(key, config)
        self.now_ms = 1_000_000
        self.wake_at: int | None = None
        self.sent: dict[int, Send] = {}
        self._tokens = 0

    def step(self, event: Event) -> list[Effect]:
        """Take one event and all that the disk has to say; returns all effects in order."""
        effects: list[Effect] = []
        events = [event]
        while events:
            some = self.core.step(events.pop(0), self.now_ms)
            effects += some
            for effect in some:
                match effect:
                    case Persist(number):
                        events.append(Persisted(number))
                    case FlushLog():
                        events.append(Flushed(self.core.log.end_offset))
                    case Send(number):
                        self.sent[number] = effect
                    case WakeAt(deadline_ms):
                        self.wake_at = deadline_ms
        return effects

    def ask(self, request: Request) -> list[Effect]:
        self._tokens += 1
        return self.step(Received(self._tokens, request, 0.5))

    def answer(self, kind: type[Request], response: Response) -> None:
        """Answer every request of a kind that waits."""
        for number, send in list(self.sent.items()):
            if isinstance(send.request, kind):
                del self.sent[number]
                self.step(Answered(number, response, 0.5))

    def wait(self) -> list[Effect]:
        """Let time pass to the next deadline."""
        assert self.wake_at is not None
        self.now_ms = max(self.now_ms, self.wake_at)
        return self.step(Tick(0.5))


def election_of(state: dict[str, Any]) -> ElectionState:
    """What a recorded quorum-state says."""
    directory = state.get("votedDirectoryId")
    voted = ReplicaKey(state["votedId"], uuid_from_text(directory) if directory else ZERO_UUID)
    leader = None if state["leaderId"] < 0 else state["leaderId"]
    return ElectionState(state["leaderEpoch"], leader, None if voted.id < 0 else voted)


def key_of(row: Row) -> ReplicaKey:
    """The recorded controller."""
    if row["world"] == "outside":
        return ReplicaKey(ASKED, OTHER_DIRECTORY)
    return ReplicaKey(ASKED, directory_of(ASKED))


def is_dynamic(row: Row) -> bool:
    """Whether its voters have directory ids."""
    return row["world"] in {"dynamic", "dynamic-leader", "outside"}


def voters_of(row: Row) -> VoterSet:
    """Its voters."""
    ids = (1,) if row["world"] == "sole" else (1, 2, 3)
    return VoterSet(
        tuple(
            Voter(
                ReplicaKey(i, directory_of(i) if is_dynamic(row) else ZERO_UUID),
                (VoterEndpoint("CONTROLLER", NODES[i].host, NODES[i].port),),
            )
            for i in ids
        )
    )


def core_for(row: Row) -> DrivenCore:
    """A core with the role and the facts of the controller before the question."""
    config = RaftConfig(
        election_timeout_ms=HOUR_MS,
        fetch_timeout_ms=HOUR_MS,
        election_backoff_max_ms=HOUR_MS,
        bootstrap=(Node(-1, "127.0.0.1", 9092), Node(-1, "127.0.0.1", 9093)),
        static_nodes=() if is_dynamic(row) else tuple(NODES.values()),
    )
    driven = DrivenCore(key_of(row), config)
    role = row["role"]
    election = election_of(row["before"])
    match role.split(",")[0]:
        case "prospective" if "no leader" in role:
            _start(driven, row, election)
            driven.wait()
        case "prospective":
            _start(driven, row, election)
            _let_stand(driven)
        case "candidate":
            _become_candidate(driven, row)
        case "leader":
            _become_candidate(driven, row)
            _become_leader(driven, row)
        case "the only voter":
            _start(driven, row, ElectionState(election.epoch - 1))
            _append_the_rest(driven, row)
        case _:
            _start(driven, row, election)
    if role in {"follower, fetched", "follower, leader resigned"}:
        standing = Standing(election.epoch, 2, NODES[2])
        driven.answer(FetchRequest, FetchResponse(ErrorCode.NONE, standing))
    if role == "follower, leader resigned":
        keys = {voter.key.id: voter.key for voter in voters_of(row).voters}
        driven.ask(EndQuorumEpochRequest(election.epoch, 2, (keys[3], keys[1]), NODES[2]))
    return driven


def _start(driven: DrivenCore, row: Row, election: ElectionState) -> None:
    log = row["log"]
    end, epochs = log["end"], log["epochs"]
    if epochs and epochs[-1][0] > election.epoch:
        end, epochs = epochs[-1][1], epochs[:-1]  # what the leader will write itself
    facts = QuorumFacts(int(is_dynamic(row)), voters_of(row), in_log=bool(epochs))
    snapshots = [SnapshotFile(SnapshotId(*one), SNAPSHOT_BYTES) for one in log["snapshots"]]
    driven.step(
        Started(
            election=election,
            start_offset=log["start"],
            end_offset=end,
            epochs=tuple((epoch, start) for epoch, start in epochs),
            snapshots=tuple(snapshots),
            history=((0, facts),),
            random=0.5,
        )
    )


def _let_stand(driven: DrivenCore) -> None:
    core = driven.core
    leader = core.leader_id
    assert leader is not None
    driven.ask(EndQuorumEpochRequest(core.epoch, leader, (core.key,), NODES[leader]))


def _become_candidate(driven: DrivenCore, row: Row) -> None:
    epoch = row["epoch"] - 1
    _start(driven, row, ElectionState(epoch, 2, None))
    _let_stand(driven)
    yes = VoteResponse(ErrorCode.NONE, Standing(epoch), granted=True)
    driven.answer(VoteRequest, yes)


def _become_leader(driven: DrivenCore, row: Row) -> None:
    core, epoch = driven.core, row["epoch"]
    yes = VoteResponse(ErrorCode.NONE, Standing(epoch), granted=True)
    driven.answer(VoteRequest, yes)
    _append_the_rest(driven, row)
    for voter in voters_of(row).voters:
        end = row["state"]["voter_ends"][str(voter.key.id)]
        if voter.key.id == ASKED or end < 0:
            continue
        starts = [(start, one) for one, start in row["log"]["epochs"]]
        last = max(one for start, one in starts if start < end)
        driven.ask(FetchRequest(voter.key, core.epoch, end, last, max_wait_ms=0))


def _append_the_rest(driven: DrivenCore, row: Row) -> None:
    base, end, epoch = driven.core.log.end_offset, row["log"]["end"], row["epoch"]
    if base < end:
        driven.step(Proposed(epoch, (BatchFacts(base, end, epoch),), b""))
