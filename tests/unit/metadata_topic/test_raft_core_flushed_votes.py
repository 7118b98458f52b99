"""What the core shows to others of its log must still be there after a crash."""

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.effects import (
    AppendEpochStart,
    Effect,
    FlushLog,
    Persist,
    Send,
    TruncateLog,
)
from metadata_topic.raft.events import (
    Answered,
    ElectionState,
    Event,
    Flushed,
    Persisted,
    Received,
    Started,
    Tick,
    Truncated,
)
from metadata_topic.raft.log_view import LogView, SnapshotFile
from metadata_topic.raft.messages import (
    BatchFacts,
    BeginQuorumEpochRequest,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    Node,
    SnapshotId,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet

NODES = tuple(Node(node_id, f"n{node_id}", 9093) for node_id in (1, 2, 3))
VOTERS = VoterSet(tuple(Voter(ReplicaKey(node.id)) for node in NODES))
LEADER = Standing(1, 1, NODES[0])


class Replica2:
    """The core of node 2, whose quorum-state is durable at once."""

    def __init__(self, end_offset: int = 0) -> None:
        self._core = RaftCore(ReplicaKey(2, b"2" * 16), RaftConfig(static_nodes=NODES))
        history = ((0, QuorumFacts(0, VOTERS)),)
        epochs = ((1, 0),) if end_offset else ()
        self.step(Started(ElectionState(), 0, end_offset, epochs, (), history, 0.0), 0)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        effects = self._core.step(event, now_ms)
        for effect in list(effects):
            if isinstance(effect, Persist):
                effects += self.step(Persisted(effect.number), now_ms)
        return effects


def sends(effects: list[Effect], kind: type) -> list[Send]:
    return [one for one in effects if isinstance(one, Send) and isinstance(one.request, kind)]


def yes_of(epoch: int) -> VoteResponse:
    return VoteResponse(ErrorCode.NONE, Standing(epoch), granted=True)


def test_a_candidate_shows_voters_only_what_it_has_flushed() -> None:
    replica = Replica2()
    begin = BeginQuorumEpochRequest(1, 1, ReplicaKey(2), NODES[0])
    (fetch,) = sends(replica.step(Received(1, begin, 0.0), 10), FetchRequest)
    records = FetchResponse(
        ErrorCode.NONE, LEADER, -1, 0, batches=(BatchFacts(0, 1, 1),), data=b"x"
    )
    appended = replica.step(Answered(fetch.number, records, 0.0), 20)
    assert any(isinstance(one, FlushLog) for one in appended)

    pre_vote, _ = sends(replica.step(Tick(0.0), 3000), VoteRequest)
    stands = replica.step(Answered(pre_vote.number, yes_of(1), 0.0), 3010)
    assert sends(stands, VoteRequest) == []
    asked = sends(replica.step(Flushed(1), 3020), VoteRequest)
    assert [(one.request.end_offset, one.request.pre_vote) for one in asked] == [(1, False)] * 2


def test_a_winner_writes_nothing_while_its_log_is_being_cut() -> None:
    replica = Replica2(end_offset=3)
    leader = Standing(2, 1, NODES[0])
    begin = BeginQuorumEpochRequest(2, 1, ReplicaKey(2), NODES[0])
    (fetch,) = sends(replica.step(Received(1, begin, 0.0), 10), FetchRequest)
    diverging = FetchResponse(ErrorCode.NONE, leader, -1, 0, diverging=EpochEnd(1, 2))
    assert TruncateLog(2) in replica.step(Answered(fetch.number, diverging, 0.0), 20)

    pre_vote, _ = sends(replica.step(Tick(0.0), 3000), VoteRequest)
    stands = replica.step(Answered(pre_vote.number, yes_of(2), 0.0), 3010)
    vote, _ = sends(stands, VoteRequest)
    wins = replica.step(Answered(vote.number, yes_of(3), 0.0), 3020)
    assert not [one for one in wins if isinstance(one, AppendEpochStart)]
    leads = replica.step(Truncated(2), 3030)
    assert [one.base_offset for one in leads if isinstance(one, AppendEpochStart)] == [2]


def test_a_snapshot_below_the_log_is_not_what_precedes_it() -> None:
    older, newer = SnapshotFile(SnapshotId(250, 20), 9), SnapshotFile(SnapshotId(259, 21), 9)
    log = LogView(0, 255, ((20, 240),), (older,))
    log.restart_at(newer)
    assert log.end_of(21) == EpochEnd(21, 259)
    assert LogView(259, 259, (), (older, newer)).end_of(21) == EpochEnd(21, 259)
