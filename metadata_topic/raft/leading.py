"""A leader: answers fetches, advances the high watermark, keeps or gives up leadership.

Source: KIP-595 (Fetch, BeginQuorumEpoch, leader progress timeout), KIP-630 (snapshots), KIP-836
(times of replicas); rules of Kafka 4.3.
"""

from typing import Final

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.raft.effects import (
    AdvanceHighWatermark,
    Append,
    AppendEpochStart,
    Refuse,
    RespondChunk,
    RespondRecords,
)
from metadata_topic.raft.events import Proposed
from metadata_topic.raft.log_view import LogView
from metadata_topic.raft.messages import (
    BatchFacts,
    BeginQuorumEpochRequest,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    SnapshotId,
)
from metadata_topic.raft.parked import Parked
from metadata_topic.raft.replica import Replica
from metadata_topic.raft.role_states import Candidate, Leader, ReplicaProgress, Resigned
from metadata_topic.raft.voters import ReplicaKey, majority_offset

OBSERVER_SESSION_MS: Final = 5 * 60 * 1000
"""Time after its last fetch for which an observer is kept."""
OBSERVERS_MAX: Final = 2000
PARKED_MAX: Final = 2000


# -- taking and giving up leadership ----------------------------------------------------------


def take_lead(replica: Replica, granting: tuple[int, ...]) -> None:
    """Lead: the vote state is durable; open the epoch in the log."""
    log, facts = replica.log, replica.history.latest
    base = log.end_offset
    voters = replica.voters_with_own_report()
    is_dynamic = facts.kraft_version > 0
    with_voters = is_dynamic and not (facts.in_log and voters == replica.voters)
    end = base + (3 if with_voters else 1)
    others = [voter.key for voter in voters.voters if voter.key.id != replica.key.id]
    replica.become_leader(
        Leader(base, replica.now_ms, voters={key: ReplicaProgress() for key in others})
    )
    replica.proven_epoch = replica.epoch
    replica.do(
        AppendEpochStart(
            epoch=replica.epoch,
            base_offset=base,
            leader_id=replica.key.id,
            voters=voters,
            kraft_version=facts.kraft_version,
            granting=granting,
            with_voters=with_voters,
        )
    )
    said = (facts.kraft_version, voters) if with_voters else (None, None)
    append(replica, BatchFacts(base, end, replica.epoch, *said))
    replica.flush()


def append(replica: Replica, batch: BatchFacts) -> None:
    """Record a batch that goes into the log."""
    replica.log.append(batch.epoch, batch.base_offset, batch.end_offset)
    replica.history.note(batch)
    if isinstance(replica.state, Leader):
        replica.state.must_look = True


def on_proposed(replica: Replica, event: Proposed) -> None:
    """Append batches of the active controller."""
    state = replica.state
    is_ours = isinstance(state, Leader) and event.epoch == replica.epoch
    begins_at = event.batches[0].base_offset if event.batches else -1
    if not is_ours or begins_at != replica.log.end_offset:
        replica.do(Refuse())
        return
    replica.do(Append(event.batches, event.data))
    for batch in event.batches:
        append(replica, batch)
    replica.flush()


def resign(replica: Replica, state: Leader) -> None:
    """Give up leadership in favour of the others, the most complete first.

    Among equals the next id comes first, and the lowest after the highest. So leaders that cannot
    continue reach one that can, instead of naming each other without end.
    """
    me = replica.key.id
    others = sorted(
        state.voters.items(), key=lambda one: (-one[1].end_offset, one[0].id < me, one[0].id)
    )
    replica.become_resigned(
        Resigned(
            replica.draw_election_deadline(),
            sorted(key.id for key in state.voters),
            tuple(key for key, _ in others),
        )
    )


def poll_leader(replica: Replica, state: Leader) -> bool:
    """Check for a majority, send BeginQuorumEpoch where due, answer parked Fetches."""
    if not replica.is_able_to_lead:
        resign(replica, state)
        return True
    if not replica.is_voter and replica.history.latest_end <= state.high_watermark:
        # Until then it leads without counting itself: the others may lack the record that removes
        # it.
        replica.report(f"epoch {replica.epoch} is given up: this node is no voter any more")
        resign(replica, state)
        return True
    if not has_majority(replica, state):
        replica.report(f"no majority of the voters fetches: epoch {replica.epoch} is given up")
        resign(replica, state)
        return True
    _call_voters(replica, state)
    _answer_parked(replica, state)
    _forget_observers(replica, state)
    return False


def check_quorum_ms(replica: Replica) -> int:
    """Longest silence of a majority before the leader resigns."""
    return replica.config.fetch_timeout_ms * 3 // 2


def majority_until_ms(replica: Replica, state: Leader) -> int | None:
    """Return when the majority's last fetches expire; None if it needs no other voter."""
    needed = replica.voters.majority - (1 if replica.voters.has(replica.key) else 0)
    if needed <= 0:
        return None
    times = sorted(
        (
            state.since_ms if one.last_fetch_ms is None else max(one.last_fetch_ms, state.since_ms)
            for one in state.voters.values()
        ),
        reverse=True,
    )
    return times[needed - 1] + check_quorum_ms(replica)


def has_majority(replica: Replica, state: Leader) -> bool:
    """True if a majority of the voters has fetched recently.

    Counts this leader if it is a voter.
    """
    until_ms = majority_until_ms(replica, state)
    return until_ms is None or replica.now_ms < until_ms


def _call_voters(replica: Replica, state: Leader) -> None:
    half_ms = replica.config.fetch_timeout_ms // 2
    me = replica.node_of(replica.key.id)
    for key, progress in state.voters.items():
        if replica.now_ms < begin_due_ms(progress, half_ms):
            continue
        node = replica.node_of(key.id)
        if node is not None and replica.is_ready(node):
            progress.begin_sent_ms = replica.now_ms
            replica.send(node, BeginQuorumEpochRequest(replica.epoch, replica.key.id, key, me))


def begin_due_ms(progress: ReplicaProgress, half_ms: int) -> int:
    """Time when BeginQuorumEpoch is due: half a fetch timeout after the voter's last contact."""
    signs = [t for t in (progress.last_fetch_ms, progress.begin_sent_ms) if t is not None]
    return max(signs) + half_ms if signs else 0


# -- the high watermark -----------------------------------------------------------------------


def update_high_watermark(replica: Replica, state: Leader) -> None:
    """Commit the records that a majority has flushed, once they include one of this epoch."""
    ends = []
    for voter in replica.voters.voters:
        if voter.key.id == replica.key.id:
            ends.append(replica.log.flushed_end if replica.voters.has(replica.key) else -1)
        else:
            progress = state.voters.get(voter.key)
            ends.append(-1 if progress is None else progress.end_offset)
    committed = majority_offset(ends, replica.voters.majority)
    # An older epoch's record may still be replaced, although a majority has it (Raft 5.4.2).
    if committed <= state.epoch_start_offset or committed <= state.high_watermark:
        return
    state.high_watermark = committed
    state.must_look = True
    if committed > replica.high_watermark:
        replica.high_watermark = committed
        replica.do(AdvanceHighWatermark(committed))


def follow_voters(replica: Replica, state: Leader) -> None:
    """Count as voters exactly those in the newest record of the log."""
    heard = {_heard(key, progress): progress for key, progress in state.voters.items()}
    known = {**state.observers, **heard}
    others = [one.key for one in replica.voters.voters if one.key.id != replica.key.id]
    state.voters = {key: known.get(key, ReplicaProgress()) for key in others}
    state.observers = {key: one for key, one in known.items() if key not in state.voters}
    update_high_watermark(replica, state)


def _heard(key: ReplicaKey, progress: ReplicaProgress) -> ReplicaKey:
    """Key of a voter, with the directory that fetches for it if it is a static one."""
    return key if key.directory_id != ZERO_UUID else ReplicaKey(key.id, progress.directory_id)


def _progress_of(replica: Replica, state: Leader, key: ReplicaKey) -> ReplicaProgress | None:
    """Find the progress entry of a replica; None for one without id."""
    if key.id < 0 or key.id == replica.key.id:
        return None
    for voter, progress in state.voters.items():
        # A static voter has no directory id here; another directory is another replica.
        if voter.id == key.id and replica.voters.has(key):
            if _speaks(replica, state, progress, key):
                return progress
            break
    known = state.observers.pop(key, None)
    if known is None and len(state.observers) < OBSERVERS_MAX:
        known = ReplicaProgress()
    if known is not None:
        state.observers[key] = known  # the last entry, since it fetches now
    return known


def _speaks(replica: Replica, state: Leader, progress: ReplicaProgress, key: ReplicaKey) -> bool:
    """True if a replica counts for the static voter of its id: of two directories only the first.

    If both counted as one voter, a majority of voters would not be a majority of disks. A directory
    without a fetch for one fetch timeout is taken as lost: the voter has a new one.
    """
    mine, known = key.directory_id, progress.directory_id
    if mine in (known, ZERO_UUID):
        return True
    heard_ms = progress.last_fetch_ms
    is_alive = heard_ms is not None and replica.now_ms - heard_ms < replica.config.fetch_timeout_ms
    if known != ZERO_UUID and is_alive:
        if key not in state.observers:
            replica.report(
                f"two nodes are voter {key.id}: directory ids {uuid_to_text(known)} and "
                f"{uuid_to_text(mine)}; the second does not count",
                is_error=True,
            )
        return False
    if known != ZERO_UUID:
        replica.report(
            f"voter {key.id} has directory id {uuid_to_text(mine)} now, it had "
            f"{uuid_to_text(known)}: what that one had flushed and voted is gone"
        )
    state.observers.pop(key, None)
    progress.directory_id, progress.end_offset = mine, -1
    return True


def _note_fetch(replica: Replica, state: Leader, request: FetchRequest) -> None:
    progress = _progress_of(replica, state, request.replica)
    if progress is None:
        return
    now_ms, end = replica.now_ms, replica.log.end_offset
    if request.offset >= end:
        progress.last_caught_up_ms = now_ms
    elif progress.leader_end_then >= 0 and request.offset >= progress.leader_end_then:
        progress.last_caught_up_ms = progress.last_fetch_ms
    progress.leader_end_then = end
    progress.last_fetch_ms = now_ms
    if request.offset != progress.end_offset:
        _note_loss(replica, progress, request)
        progress.end_offset = request.offset
        update_high_watermark(replica, state)


def _note_loss(replica: Replica, progress: ReplicaProgress, request: FetchRequest) -> None:
    """Report a voter whose log was longer before: it lost its disk. Commits stay valid."""
    if request.offset < progress.end_offset and replica.voters.has(request.replica):
        replica.report(
            f"voter {request.replica.id} fetches from offset {request.offset} and had flushed up "
            f"to {progress.end_offset}: its disk is lost, or an older copy of it was put back"
        )


# -- answering --------------------------------------------------------------------------------


def leader_error(replica: Replica, epoch: int) -> ErrorCode | None:
    """Error of a request to the leader of `epoch`; None if this replica is that leader."""
    if epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > replica.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(replica.state, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if replica.closing_deadline_ms is not None:
        return ErrorCode.BROKER_NOT_AVAILABLE
    return None


def on_fetch_request(replica: Replica, token: int, request: FetchRequest) -> None:
    """Answer a Fetch, or park it."""
    numbers = (request.offset, request.last_fetched_epoch, request.epoch, request.max_wait_ms)
    if min(numbers) < 0 or request.last_fetched_epoch > request.epoch:
        error: ErrorCode | None = ErrorCode.INVALID_REQUEST
    else:
        error = leader_error(replica, request.epoch)
    if error is not None:
        replica.respond(token, FetchResponse(error, replica.standing()))
        return
    state = replica.state
    assert isinstance(state, Leader)
    elsewhere = where_to_continue(replica.log, request.offset, request.last_fetched_epoch)
    if elsewhere is not None:
        _note_redirected(replica, state, request)
        replica.respond(token, _redirected(replica, state, elsewhere))
        return
    _note_fetch(replica, state, request)
    if _has_news(replica, state, request) or request.max_wait_ms == 0:
        _answer(replica, state, token, request)
        return
    _unpark(replica, state, request.replica)
    if len(state.parked) >= PARKED_MAX:
        _answer(replica, state, token, request)
        return
    state.parked.add(Parked(token, request, replica.now_ms + request.max_wait_ms))


def where_to_continue(
    log: LogView, offset: int, last_fetched_epoch: int
) -> SnapshotId | EpochEnd | None:
    """Return the step of a replica with this log end before it can fetch records.

    None: nothing.

    Returns:
        The snapshot to fetch, or the end to cut the log to.
    """
    newest, oldest = log.newest_snapshot, log.oldest_snapshot
    if newest is not None and oldest is not None:
        at_start = offset == log.start_offset == oldest.id.end_offset
        if (
            offset == 0
            or offset < log.start_offset
            or (at_start and last_fetched_epoch != oldest.id.epoch)
            or last_fetched_epoch < oldest.id.epoch
        ):
            return newest.id
        if at_start:
            return None
    if offset == log.start_offset == 0:
        return None  # no records before it, so they cannot differ in any epoch
    end = log.end_of(last_fetched_epoch)
    if end.epoch != last_fetched_epoch or end.end_offset < offset:
        return end
    return None


def _redirected(replica: Replica, state: Leader, elsewhere: SnapshotId | EpochEnd) -> FetchResponse:
    return FetchResponse(
        ErrorCode.NONE,
        replica.standing(),
        high_watermark=state.high_watermark,
        log_start_offset=replica.log.start_offset,
        diverging=elsewhere if isinstance(elsewhere, EpochEnd) else None,
        snapshot_id=elsewhere if isinstance(elsewhere, SnapshotId) else None,
    )


def _note_contact(replica: Replica, state: Leader, key: ReplicaKey) -> None:
    progress = _progress_of(replica, state, key)
    if progress is not None:
        progress.last_fetch_ms = replica.now_ms
        progress.leader_end_then = replica.log.end_offset


def _note_redirected(replica: Replica, state: Leader, request: FetchRequest) -> None:
    """Reset the replica's end, since its log may shrink, until it fetches records."""
    _note_contact(replica, state, request.replica)
    progress = _progress_of(replica, state, request.replica)
    if progress is not None:
        _note_loss(replica, progress, request)
        progress.end_offset = -1


def _has_news(replica: Replica, state: Leader, request: FetchRequest) -> bool:
    return request.offset < replica.log.end_offset or request.high_watermark < state.high_watermark


def _answer(replica: Replica, state: Leader, token: int, request: FetchRequest) -> None:
    replica.do(
        RespondRecords(
            token=token,
            standing=replica.standing(),
            high_watermark=state.high_watermark,
            log_start_offset=replica.log.start_offset,
            offset=request.offset,
            end_offset=replica.log.end_offset,
            max_bytes=request.max_bytes,
            after=replica.epoch_persist,
        )
    )


def _unpark(replica: Replica, state: Leader, key: ReplicaKey) -> None:
    """Answer a replica's older Fetch at its new one: it no longer waits for the first."""
    parked = state.parked.take_of(key)
    if parked is not None:
        _answer(replica, state, parked.token, parked.request)


def _answer_parked(replica: Replica, state: Leader) -> None:
    due = state.parked.take_due(replica.now_ms)
    if state.must_look:
        state.must_look = False
        # The voters first: commits wait for them.
        ids = {key.id for key in state.voters}
        due += state.parked.take(
            lambda parked: _has_news(replica, state, parked.request), first=ids
        )
    for parked in due:
        _answer(replica, state, parked.token, parked.request)


def _forget_observers(replica: Replica, state: Leader) -> None:
    limit_ms = replica.now_ms - OBSERVER_SESSION_MS
    while state.observers:
        key = next(iter(state.observers))
        if (state.observers[key].last_fetch_ms or 0) >= limit_ms:
            break
        del state.observers[key]


def on_fetch_snapshot_request(replica: Replica, token: int, request: FetchSnapshotRequest) -> None:
    """Answer with a chunk of a snapshot."""
    error = leader_error(replica, request.epoch)
    snapshot = replica.log.snapshot(request.snapshot_id)
    if error is None:
        state = replica.state
        assert isinstance(state, Leader)
        _note_contact(replica, state, request.replica)
        if snapshot is None or snapshot.id.end_offset == 0:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= request.position < snapshot.size_bytes:
            error = ErrorCode.POSITION_OUT_OF_RANGE
    if error is not None or snapshot is None:
        code = error or ErrorCode.SNAPSHOT_NOT_FOUND
        replica.respond(token, FetchSnapshotResponse(code, replica.standing(), request.snapshot_id))
        return
    replica.do(
        RespondChunk(
            token=token,
            standing=replica.standing(),
            snapshot_id=snapshot.id,
            size_bytes=snapshot.size_bytes,
            position=request.position,
            max_bytes=max(min(request.max_bytes, replica.config.snapshot_max_bytes), 1),
            after=replica.epoch_persist,
        )
    )


def win(replica: Replica, state: Candidate) -> None:
    """Lead, once the leader state of the elected candidate is durable."""
    take_lead(replica, tuple(sorted(state.tally.granted)))
