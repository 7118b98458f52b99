"""One replica within the small scope: a core and its disk as a value, stepped once and remembered.

Cores are deterministic, so each (state, event) is computed once. Times are excluded of a state: a
step happens either at time 0, when nothing is due, or at the deadline of the role's own timeout.
Quorum-state is written at once; a flush is an event of its own.
"""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft import effects as fx
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.events import (
    Answered,
    AppendGranted,
    ElectionState,
    Event,
    Flushed,
    Persisted,
    Proposed,
    Received,
    Started,
    Tick,
    Truncated,
)
from metadata_topic.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BatchFacts,
    FetchRequest,
    FetchResponse,
    Node,
    RemoveVoterRequest,
    Request,
    Response,
    UpgradeKraftVersionRequest,
    VoterResponse,
)
from metadata_topic.raft.parked import ParkedFetches
from metadata_topic.raft.replica import Replica
from metadata_topic.raft.role_states import Candidate, Follower, Leader, Tally, Unattached
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.plan import PORT, address_of, key_of

Entry = tuple[int, bytes]
Permutation = tuple[int, ...]
PAYLOAD_BYTES = 8
RAISED = b"K" + bytes(PAYLOAD_BYTES - 1)
"""Of every batch."""
LEFT_OUT = {
    "since_ms",
    "last_fetch_ms",
    "last_caught_up_ms",
    "leader_end_then",
    "begin_sent_ms",
    "directory_id",  # each voter has one disk here: a leader that has heard it knows nothing more
    "election_deadline_ms",
    "fetch_deadline_ms",
    "must_look",
    "max_wait_ms",
    "max_bytes",
    "observers",
    "voter_request_ms",
}
"""Of these a replica with voters that change keeps the observers, and whether each caught up."""
ABLE = ApiVersionsResponse(ErrorCode.NONE, (0, 1))


@dataclass
class Local:
    """A replica.

    Attributes:
        log: (epoch, payload) by offset.
        flushed: how many of them are flushed.
        flushing: what the flush under way will make durable; None: there is none.
    """

    core: RaftCore
    log: list[Entry]
    flushed: int
    flushing: int | None
    election: ElectionState


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step leads to.

    Attributes:
        local: the new state's number.
        sends: (to, message) requests.
        answer: (to, message), if a request was answered.
        led: the epoch, if it became leader.
        commit: the high watermark, if that rose.
    """

    local: int
    sends: tuple[tuple[int, Request], ...]
    answer: Response | None
    led: int | None
    commit: int | None


def canonical(thing: Any, places: Permutation, *, has_changes: bool = False) -> Any:
    """A value without times, with node ids exchanged."""
    if isinstance(thing, ReplicaKey | Node | Voter):
        return places[thing.key.id if isinstance(thing, Voter) else thing.id]
    if isinstance(thing, VoterSet):
        return tuple(sorted(places[one] for one in thing.ids))
    if isinstance(thing, bytes | bytearray):
        return tuple(
            renamed(bytes(thing[at : at + PAYLOAD_BYTES]), places)
            for at in range(0, len(thing), PAYLOAD_BYTES)
        )
    if isinstance(thing, Tally):
        return tuple(
            tuple(sorted(places[i] for i in one)) for one in (thing.granted, thing.refused)
        )
    if isinstance(thing, ParkedFetches):
        return canonical(tuple(thing.every()), places, has_changes=has_changes)
    if is_dataclass(thing) and not isinstance(thing, type):
        return (type(thing).__name__, *_of_fields(thing, places, has_changes=has_changes))
    if isinstance(thing, dict):
        pairs = (
            (canonical(k, places), canonical(v, places, has_changes=has_changes))
            for k, v in thing.items()
        )
        return tuple(sorted(pairs))
    if isinstance(thing, tuple | list):
        return tuple(canonical(one, places, has_changes=has_changes) for one in thing)
    return thing


def _of_fields(thing: Any, places: Permutation, *, has_changes: bool) -> Iterator[Any]:
    for field in fields(thing):
        value = getattr(thing, field.name)
        if field.name == "leader_id" and value is not None and value > 0:
            value = places[value]
        if has_changes and field.name == "last_caught_up_ms":
            yield value is None
        elif field.name not in LEFT_OUT or (has_changes and field.name == "observers"):
            yield canonical(value, places, has_changes=has_changes)


def renamed(payload: bytes, places: Permutation) -> bytes:
    """A payload with its leader exchanged, if it opens an epoch, or the voters that it names."""
    if payload[:1] == b"L":
        return payload[:-1] + bytes([places[payload[-1]]])
    if payload[:1] == b"V":
        return payload_of(places[one] for one in ids_of(payload))
    return payload


def payload_of(ids: Iterable[int]) -> bytes:
    """The payload of a batch that names these voters."""
    return b"V" + bytes(PAYLOAD_BYTES - 2) + bytes([sum(1 << one for one in ids)])


def ids_of(payload: bytes) -> tuple[int, ...]:
    """The voters that a payload names."""
    return tuple(one for one in range(8) if payload[-1] >> one & 1)


def voters_of(ids: Iterable[int]) -> VoterSet:
    """Voters as the log names them."""
    return VoterSet(
        tuple(
            Voter(key_of(one), (VoterEndpoint("CONTROLLER", address_of(one).host, PORT),))
            for one in sorted(ids)
        )
    )


class Locals:
    """All states that any replica was in, by number."""

    def __init__(
        self,
        voters: int,
        permutations: tuple[Permutation, ...],
        *,
        flushes_at_once: bool,
        has_changes: bool = False,
        is_static: bool = False,
        searches: bool = False,
    ) -> None:
        """Begin with none.

        Args:
            voters: how many there are at first, ids from 1 on.
            permutations: of all nodes that count as one state.
            flushes_at_once: a flush is done within the step.
            has_changes: voters stand in the log, and change.
            is_static: their first change puts them into the log.
            searches: Fetches that look for a leader arrive.
        """
        self.flushes_at_once, self.has_changes, self.searches = (
            flushes_at_once,
            has_changes,
            searches,
        )
        ids = range(1, voters + 1)
        self._permutations = permutations
        self._facts = QuorumFacts(0, VoterSet(tuple(Voter(ReplicaKey(one)) for one in ids)))
        nodes = tuple(address_of(one) for one in ids)
        if has_changes and not is_static:
            self._facts = QuorumFacts(1, voters_of(ids), in_log=True)
        self._is_static = is_static
        self._config = RaftConfig(
            static_nodes=() if has_changes and not is_static else nodes,
            retry_backoff_ms=0,
            fetch_max_wait_ms=0,
        )
        self._blobs: list[bytes] = []
        self._numbers: dict[Any, int] = {}
        self._steps: dict[Any, Outcome | None] = {}
        self.values: list[Local] = []
        self.places: list[tuple[int, ...]] = []
        self._keys: dict[Any, int] = {}
        self.stepped = 0

    def first(self, node_id: int) -> Outcome:
        """A replica that starts with an empty disk."""
        return self._start(node_id, ElectionState(), [])

    def _start(self, node_id: int, election: ElectionState, log: list[Entry]) -> Outcome:
        config = self._config
        if self._is_static:
            [me] = voters_of([node_id]).voters
            config = replace(config, endpoints=me.endpoints)
        core = RaftCore(key_of(node_id), config)
        local = Local(core, log, len(log), None, election)
        epochs: list[tuple[int, int]] = []
        for offset, (epoch, _) in enumerate(log):
            if not epochs or epochs[-1][0] != epoch:
                epochs.append((epoch, offset))
        history = [(0, self._facts)]
        history += [
            (offset + 1, QuorumFacts(1, voters_of(ids_of(payload)), in_log=True))
            for offset, (_, payload) in enumerate(log)
            if payload[:1] == b"V"
        ]
        started = Started(election, 0, len(log), tuple(epochs), (), tuple(history), 0.0)
        return self._carry_out(local, started, 0)

    def _load(self, number: int) -> Local:
        local: Local = pickle.loads(self._blobs[number])
        return local

    def _keep(self, local: Local) -> int:
        core = local.core
        core.replica._retry_at.clear()
        core.replica.effects = []
        replica = core.replica
        facts = (
            replica.state,
            replica.election,
            replica.high_watermark,
            sorted(((one.to.id, one) for one in replica.pending.values()), key=lambda one: one[0]),
        )
        own = (local.flushed, local.flushing, replica.log.flushed_end, replica.flushing)
        keys = []
        for places in self._permutations:
            log = tuple((epoch, renamed(payload, places)) for epoch, payload in local.log)
            pending = tuple(sorted((places[i], canonical(one, places)) for i, one in facts[3]))
            said = tuple(canonical(one, places, has_changes=self.has_changes) for one in facts[:3])
            disk = canonical(local.election, places)
            keys.append((places[core.key.id], said, pending, log, own, disk))
        number = self._numbers.get(keys[0])
        if number is None:
            number = self._numbers[keys[0]] = len(self._blobs)
            self._blobs.append(pickle.dumps(local, pickle.HIGHEST_PROTOCOL))
            self.values.append(self._load(number))
            self.places.append(tuple(self._keys.setdefault(key, len(self._keys)) for key in keys))
        return number

    def voters_in(self, log: Iterable[Entry]) -> tuple[VoterSet, ...]:
        """The voters that the entries of a log name, one after the other."""
        return tuple(voters_of(ids_of(payload)) for _, payload in log if payload[:1] == b"V")

    # Events; None where they cannot be

    def deliver(self, number: int, request: Request) -> Outcome | None:
        return self._step(number, ("request", request))

    def answer(self, number: int, source: int, response: Response | None) -> Outcome | None:
        return self._step(number, ("answer", source, response))

    def time_out(self, number: int) -> Outcome | None:
        return self._step(number, ("timeout",))

    def propose(self, number: int, which: int) -> Outcome | None:
        return self._step(number, ("propose", which))

    def change(self, number: int, which: int) -> Outcome | None:
        """A voter is removed, or a node that is none is added."""
        return self._step(number, ("change", which))

    def flush(self, number: int) -> Outcome | None:
        return self._step(number, ("flush",))

    def crash(self, number: int, kept: int) -> Outcome | None:
        return self._step(number, ("crash", kept))

    def awaits(self, number: int, source: int, response: Response) -> bool:
        """Whether a replica has a request under way that such an answer would be for."""
        return any(
            pending.to.id == source and is_answer(pending.request, response)
            for pending in self.values[number].core.replica.pending.values()
        )

    def _step(self, number: int, event: tuple[Any, ...]) -> Outcome | None:
        key = (number, event)
        if key not in self._steps:
            self.stepped += 1
            self._steps[key] = self._compute(self._load(number), event)
        return self._steps[key]

    def _compute(self, local: Local, event: tuple[Any, ...]) -> Outcome | None:
        replica = local.core.replica
        match event:
            case ("request", request):
                return self._carry_out(local, Received(1, request, 0.0), 0)
            case ("answer", source, response):
                for number, pending in replica.pending.items():
                    if pending.to.id == source and is_answer(pending.request, response):
                        return self._carry_out(local, Answered(number, response, 0.0), 0)
            case ("timeout",):
                due_ms = timeout_of(local.core)
                if due_ms is not None:
                    return self._carry_out(local, Tick(0.0), due_ms)
            case ("propose", which) if isinstance(replica.state, Leader):
                end = len(local.log)
                batch = BatchFacts(end, end + 1, replica.epoch)
                payload = b"P" + which.to_bytes(PAYLOAD_BYTES - 1, "big")
                return self._carry_out(local, Proposed(replica.epoch, (batch,), payload), 0)
            case ("change", which) if isinstance(replica.state, Leader):
                end, request = len(local.log), _change_of(replica, replica.state, which)
                outcome = self._carry_out(local, Received(1, request, 0.0), 0)
                return outcome if len(local.log) > end else None
            case ("flush",) if local.flushing is not None:
                local.flushed, local.flushing = max(local.flushed, local.flushing), None
                return self._carry_out(local, Flushed(local.flushed), 0)
            case ("crash", kept) if local.flushed + kept <= len(local.log):
                log = local.log[: local.flushed + kept]
                return self._start(replica.key.id, local.election, log)
        return None

    def _carry_out(self, local: Local, first: Event, now_ms: int) -> Outcome:
        done = _Done(local, self.flushes_at_once, self.searches)
        events: list[Event] = [first]
        while events:
            try:
                effects = local.core.step(events.pop(0), now_ms)
            except Exception as error:
                raise Violation("the core fails", f"{type(error).__name__}: {error}") from error
            for effect in effects:
                events += done.take(effect)
        return Outcome(self._keep(local), tuple(done.sends), done.answer, done.led, done.commit)


class _Done:
    """Effects of one step, carried out."""

    def __init__(self, local: Local, flushes_at_once: bool, searches: bool) -> None:
        self._local = local
        self._flushes_at_once = flushes_at_once
        self._searches = searches
        self.sends: list[tuple[int, Request]] = []
        self.answer: Response | None = None
        self.led: int | None = None
        self.commit: int | None = None

    def take(self, effect: fx.Effect) -> list[Event]:
        """Carry an effect out; what happens at once."""
        local = self._local
        match effect:
            case fx.Persist():
                local.election = effect.election
                return [Persisted(effect.number)]
            case fx.Send(request=ApiVersionsRequest()):
                return [Answered(effect.number, ABLE, 0.0)]
            case fx.AwaitAppend():
                return [AppendGranted()]
            case fx.Respond(response=VoterResponse()):
                pass
            case fx.Send() if not self._searches and _is_search(local.core, effect):
                return _no_answer(local.core, effect)
            case fx.Send():
                assert not isinstance(effect.request, ApiVersionsRequest)
                self.sends.append((effect.to.id, effect.request))
            case fx.Respond():
                self.answer = effect.response
            case fx.RespondRecords():
                self.answer = _records(local, effect)
            case fx.AdvanceHighWatermark():
                self.commit = effect.offset
            case fx.RoleChanged() if effect.role is Role.LEADER:
                self.led = effect.epoch
            case fx.Fatal():
                raise Violation("no node gives up", effect.reason)
            case _:
                return self._to_log(effect)
        return []

    def _to_log(self, effect: fx.Effect) -> list[Event]:
        local = self._local
        match effect:
            case fx.AppendEpochStart():
                epoch, leader = effect.epoch, effect.leader_id
                payload = b"L" + epoch.to_bytes(4, "big") + leader.to_bytes(3, "big")
                local.log.append((epoch, payload))
            case fx.AppendVoters():
                if effect.kraft_version is not None:
                    local.log.append((effect.epoch, RAISED))
                local.log.append((effect.epoch, payload_of(effect.voters.ids)))
            case fx.Append():
                data = bytes(effect.data)
                for place, batch in enumerate(effect.batches):
                    at = place * PAYLOAD_BYTES
                    local.log.append((batch.epoch, data[at : at + PAYLOAD_BYTES]))
            case fx.FlushLog() if self._flushes_at_once:
                local.flushed = len(local.log)
                return [Flushed(local.flushed)]
            case fx.FlushLog():
                local.flushing = len(local.log)
            case fx.TruncateLog():
                del local.log[effect.end_offset :]
                local.flushed = len(local.log)
                if local.flushing is not None:
                    local.flushing = min(local.flushing, len(local.log))
                return [Truncated(effect.end_offset)]
        return []


def _change_of(replica: Replica, state: Leader, which: int) -> Request:
    """What a leader is asked: static voters come into the log before any other change."""
    if replica.history.latest.kraft_version == 0:
        state.reported = {one.key.id: one for one in voters_of(replica.voters.ids).voters}
        for voter, progress in state.voters.items():
            progress.directory_id = key_of(voter.id).directory_id  # it has fetched, and just now
            progress.last_fetch_ms = replica.now_ms
        return UpgradeKraftVersionRequest(replica.epoch, 1)
    if replica.voters.has(key_of(which)):
        return RemoveVoterRequest(replica.epoch, key_of(which))
    [new] = voters_of([which]).voters
    return AddVoterRequest(replica.epoch, new)


def timeout_of(core: RaftCore) -> int | None:
    """When the role's own timeout is over; None for a leader, whose other voters may be slow."""
    state = core.replica.state
    if isinstance(state, Leader):
        return None
    return state.fetch_deadline_ms if isinstance(state, Follower) else state.election_deadline_ms


def is_answer(request: Request, response: Response | None) -> bool:
    """Whether a response is of the request's kind; None may answer anything."""
    if response is None:
        return True
    return type(response).__name__.removesuffix("Response") == type(request).__name__.removesuffix(
        "Request"
    )


def _is_search(core: RaftCore, send: fx.Send) -> bool:
    """Whether a Fetch looks for a leader: those are excluded, all of them are lost."""
    state = core.replica.state
    if not isinstance(send.request, FetchRequest):
        return False
    return not isinstance(state, Follower) or state.leader != send.to


def _no_answer(core: RaftCore, send: fx.Send) -> list[Event]:
    """A follower turns back to its leader at once; who has none waits for its timeout."""
    if isinstance(core.replica.state, Unattached | Candidate):
        return []
    return [Answered(send.number, None, 0.0)]


def _records(local: Local, effect: fx.RespondRecords) -> FetchResponse:
    found = local.log[effect.offset : effect.end_offset]
    return FetchResponse(
        ErrorCode.NONE,
        effect.standing,
        effect.high_watermark,
        effect.log_start_offset,
        batches=tuple(
            BatchFacts(
                effect.offset + place,
                effect.offset + place + 1,
                epoch,
                1 if payload[:1] == b"V" else None,
                voters_of(ids_of(payload)) if payload[:1] == b"V" else None,
            )
            for place, (epoch, payload) in enumerate(found)
        ),
        data=b"".join(payload for _, payload in found),
    )
