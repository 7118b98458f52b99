"""The Raft core of one node, told step by step what happens; nothing else of the quorum is there.

    node = ToldCore(2)                       # node 2 of the static voters 1, 2, 3
    node.lead()                              # the others vote for it
    [begin, _] = node.take(BeginQuorumEpochRequest)
    node.answer(begin, None)                 # never answered
    assert node.ask(vote) == VoteResponse(...)

What it persists and flushes is durable at once, unless a test says otherwise.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.effects import (
    Effect,
    Fatal,
    FlushLog,
    Persist,
    Report,
    Respond,
    RespondChunk,
    RespondRecords,
    Send,
    WakeAt,
)
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
from metadata_topic.raft.messages import (
    BatchFacts,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    Node,
    Request,
    Response,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.role_states import Follower, Leader
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet

E = TypeVar("E")
Answer = Respond | RespondRecords | RespondChunk


def node_of(node_id: int) -> Node:
    """Where a voter listens."""
    return Node(node_id, f"n{node_id}", 9093)


def directory(node_id: int) -> bytes:
    """The directory id of a node."""
    return bytes([node_id]) * 16


def key(node_id: int) -> ReplicaKey:
    """A node with its directory."""
    return ReplicaKey(node_id, directory(node_id))


def static_facts(ids: Sequence[int]) -> QuorumFacts:
    """What a configuration with these voters says."""
    return QuorumFacts(0, VoterSet(tuple(Voter(ReplicaKey(one)) for one in ids)))


def leading(epoch: int, leader_id: int) -> Standing:
    """How a node stands that follows this leader, or is it."""
    return Standing(epoch, leader_id, node_of(leader_id))


class ScriptedCore:
    """See the module.

    Attributes:
        core: what is told.
        now_ms: its time.
        effects: everything that it wanted done, the newest step's last.
        wakes_at_ms: its deadline; None if there is none.
        flushes: whether a flush is done at once.
    """

    def __init__(
        self,
        node_id: int = 2,
        *,
        voters: Sequence[int] = (1, 2, 3),
        election: ElectionState | None = None,
        log: Sequence[tuple[int, int]] = (),
        facts: QuorumFacts | None = None,
        config: RaftConfig | None = None,
        now_ms: int = 0,
        random: float = 0.0,
        is_able_to_lead: bool = True,
    ) -> None:
        """Start it.

        Args:
            node_id: of this node.
            voters: static ones.
            election: what its quorum-state says.
            log: (epoch, first offset) of its log, then (0, end).
            facts: in place of the static voters.
            config: in place of the defaults; its addresses are filled in.
            now_ms: when.
            random: of the start.
            is_able_to_lead: what its controller says at the start.
        """
        nodes = tuple(node_of(one) for one in voters)
        config = replace(config or RaftConfig(), static_nodes=nodes)
        self.core = RaftCore(key(node_id), config)
        self.now_ms = now_ms
        self.effects: list[Effect] = []
        self.wakes_at_ms: int | None = None
        self.flushes = True
        self._taken = 0
        *epochs, end = log or [(0, 0)]
        self.step(
            Started(
                election=election or ElectionState(),
                start_offset=0,
                end_offset=end[1],
                epochs=tuple(epochs),
                snapshots=(),
                history=((0, facts or static_facts(voters)),),
                random=random,
                is_able_to_lead=is_able_to_lead,
            )
        )

    # -- what happens ---------------------------------------------------------------------------

    def step(self, event: Event) -> list[Effect]:
        """Tell it one thing; what it wants done then, with what comes of making that durable."""
        found = self.core.step(event, self.now_ms)
        self.effects += found
        made = list(found)
        for effect in found:
            match effect:
                case WakeAt(deadline_ms):
                    self.wakes_at_ms = deadline_ms
                case Persist(number=number):
                    made += self.step(Persisted(number))
                case FlushLog() if self.flushes:
                    made += self.step(Flushed(self.core.log.end_offset))
                case _:
                    pass
        return made

    def tick(self, now_ms: int, random: float = 0.0) -> list[Effect]:
        """It is so late."""
        self.now_ms, self.wakes_at_ms = now_ms, None
        return self.step(Tick(random))

    def run_until(self, now_ms: int) -> None:
        """Let time pass from deadline to deadline."""
        while self.wakes_at_ms is not None and self.wakes_at_ms <= now_ms:
            self.tick(max(self.wakes_at_ms, self.now_ms))
        self.tick(now_ms)

    def ask(self, request: Request, token: int = 7) -> list[Answer]:
        """Ask it; what it answers now."""
        return self.answers(self.step(Received(token, request, 0.0)))

    def answer(self, send: Send, response: Response | None, random: float = 0.0) -> list[Effect]:
        """Answer what it asked; None: no answer in its time."""
        return self.step(Answered(send.number, response, random))

    def append(self, records: int) -> None:
        """Let its controller decide something, in one batch."""
        end = self.core.log.end_offset
        self.step(
            Proposed(self.core.epoch, (BatchFacts(end, end + records, self.core.epoch),), b"x")
        )

    # -- what it wants --------------------------------------------------------------------------

    @staticmethod
    def answers(effects: Sequence[Effect]) -> list[Answer]:
        """Its answers among these."""
        return [one for one in effects if isinstance(one, Respond | RespondRecords | RespondChunk)]

    def take(self, kind: type[Request]) -> list[Send]:
        """What it asked of this kind since the last call, which forgets the other kinds."""
        newest, self._taken = self.effects[self._taken :], len(self.effects)
        return [one for one in newest if isinstance(one, Send) and isinstance(one.request, kind)]

    def wanted(self, kind: type[E]) -> list[E]:
        """All effects of a kind so far."""
        return [one for one in self.effects if isinstance(one, kind)]

    @property
    def leading(self) -> Leader:
        """What it knows as the leader."""
        assert self.core.leadership is not None
        return self.core.leadership

    @property
    def fatal(self) -> list[str]:
        """Why it wants the node to end."""
        return [one.reason for one in self.wanted(Fatal)]

    @property
    def reports(self) -> list[str]:
        """What a person should know."""
        return [one.text for one in self.wanted(Report)]

    # -- on the way -----------------------------------------------------------------------------

    def follow(self, leader_id: int = 1, epoch: int = 1) -> Send:
        """Let it hear of a leader; its first Fetch."""
        begin = BeginQuorumEpochRequest(epoch, leader_id, self.core.key, node_of(leader_id))
        self.ask(begin)
        assert isinstance(self.core.replica.state, Follower)
        *_, fetch = self.take(FetchRequest)
        return fetch

    def stand(self) -> list[Send]:
        """Let it time out and hear yes to its pre-vote; its requests for votes."""
        if self.core.role is not Role.PROSPECTIVE:
            self.tick(self.now_ms + 60_000)
        pre_votes = self.take(VoteRequest)
        self.answer(pre_votes[0], self.yes())
        assert self.core.role is Role.CANDIDATE
        return self.take(VoteRequest)

    def lead(self) -> None:
        """Let it win an election."""
        votes = self.stand()
        self.answer(votes[0], self.yes())
        assert self.core.role is Role.LEADER

    def yes(self) -> VoteResponse:
        """A vote for it."""
        return VoteResponse(ErrorCode.NONE, Standing(self.core.epoch), granted=True)

    def no(self) -> VoteResponse:
        """A refusal."""
        return VoteResponse(ErrorCode.NONE, Standing(self.core.epoch))

    def records(self, *batches: BatchFacts, high_watermark: int = -1) -> FetchResponse:
        """Its leader's answer with these batches."""
        leader_id = self.core.leader_id
        assert leader_id is not None
        standing = leading(self.core.epoch, leader_id)
        data = b"x" * len(batches)
        return FetchResponse(ErrorCode.NONE, standing, high_watermark, 0, None, None, batches, data)
