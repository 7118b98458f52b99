"""Two replicas under one static voter's id: only one of them is that voter at a time."""

from kafka_protocol.errors import ErrorCode
from metadata_topic.quorum.described import Now, describe_quorum
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.effects import Effect, FlushLog, Persist, Report, Send
from metadata_topic.raft.events import (
    Answered,
    ElectionState,
    Event,
    Flushed,
    Persisted,
    Received,
    Started,
    Tick,
)
from metadata_topic.raft.messages import FetchRequest, Node, Standing, VoteResponse
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet

NODES = tuple(Node(node_id, f"n{node_id}", 9093) for node_id in (1, 2, 3))
VOTERS = VoterSet(tuple(Voter(ReplicaKey(node.id)) for node in NODES))
FIRST, SECOND = ReplicaKey(2, b"f" * 16), ReplicaKey(2, b"s" * 16)
FETCH_TIMEOUT_MS = 2000


class LeadingCore:
    """The core of node 1, which leads three static voters; its disk is quick."""

    def __init__(self) -> None:
        config = RaftConfig(static_nodes=NODES, fetch_timeout_ms=FETCH_TIMEOUT_MS)
        self.core = RaftCore(ReplicaKey(1, b"1" * 16), config)
        self.now_ms = 0
        history = ((0, QuorumFacts(0, VOTERS)),)
        self.step(Started(ElectionState(), 0, 0, (), (), history, 0.0))
        self.now_ms = 5000
        asked = self.step(Tick(0.0))
        while self.core.role is not Role.LEADER:
            request = next(one for one in asked if isinstance(one, Send))
            yes = VoteResponse(ErrorCode.NONE, Standing(self.core.epoch), granted=True)
            asked = self.step(Answered(request.number, yes, 0.0))

    def step(self, event: Event) -> list[Effect]:
        effects = self.core.step(event, self.now_ms)
        for effect in list(effects):
            if isinstance(effect, Persist):
                effects += self.step(Persisted(effect.number))
            elif isinstance(effect, FlushLog):
                effects += self.step(Flushed(self.core.log.end_offset))
        return effects

    def fetched_by(self, key: ReplicaKey, offset: int = 0) -> list[str]:
        """Reports that came of it."""
        epoch = self.core.epoch if offset else 0
        request = FetchRequest(key, self.core.epoch, offset, epoch)
        effects = self.step(Received(self.now_ms, request, 0.0))
        return [one.text for one in effects if isinstance(one, Report)]

    @property
    def voter_2(self) -> ReplicaKey:
        view = describe_quorum(self.core, Now(0, self.now_ms))
        return next(one.key for one in view.voters if one.key.id == 2)


def test_the_second_is_an_observer_while_the_first_lives() -> None:
    leader = LeadingCore()
    leader.fetched_by(FIRST)
    end = leader.core.log.end_offset
    (said,) = leader.fetched_by(SECOND, end)
    assert "two nodes are voter 2" in said
    assert leader.core.high_watermark == -1, "what only the second has is on one voter's disk"
    assert leader.fetched_by(SECOND, end) == [], "it is said once"
    assert leader.voter_2 == FIRST
    leader.fetched_by(FIRST, end)
    assert leader.core.high_watermark == end


def test_a_voter_whose_directory_is_silent_has_a_new_one() -> None:
    leader = LeadingCore()
    leader.fetched_by(FIRST)
    leader.fetched_by(SECOND)
    leader.now_ms += FETCH_TIMEOUT_MS
    end = leader.core.log.end_offset
    (said,) = leader.fetched_by(SECOND, end)
    assert "has directory id" in said
    assert leader.voter_2 == SECOND
    assert leader.core.high_watermark == end
    assert describe_quorum(leader.core, Now(0, leader.now_ms)).observers == ()


def test_a_leader_names_its_own_directory() -> None:
    leader = LeadingCore()
    view = describe_quorum(leader.core, Now(0, leader.now_ms))
    assert view.voters[0].key == leader.core.key
