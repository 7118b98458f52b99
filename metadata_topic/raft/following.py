"""A replica that does not lead: finds the leader, fetches its log or its snapshot.

One request is in progress at a time, so an answer always applies to the present log.

Source: KIP-595 (Fetch), KIP-630 (FetchSnapshot); rules of Kafka 4.3.
"""

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.effects import (
    AdvanceHighWatermark,
    Append,
    InstallSnapshot,
    NoteLeaderLogStart,
    TruncateLog,
    WriteChunk,
)
from metadata_topic.raft.events import (
    ChunkWritten,
    SnapshotInstalled,
    SnapshotRefused,
    Truncated,
)
from metadata_topic.raft.messages import (
    UNKNOWN_HIGH_WATERMARK,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    SnapshotId,
    Standing,
    UpdateVoterRequest,
    VoterResponse,
)
from metadata_topic.raft.replica import Pending, Replica
from metadata_topic.raft.role_states import (
    Candidate,
    Download,
    Follower,
    Prospective,
    Tally,
    Unattached,
)

# -- asking -----------------------------------------------------------------------------------


def poll_follower(replica: Replica, state: Follower) -> bool:
    """Stand if the leader is lost, otherwise fetch; returns whether the role changed."""
    if replica.closing_deadline_ms is not None:
        return False
    if replica.is_sole and not state.hears_leader(replica.now_ms):
        replica.become_prospective()
        return True
    if replica.now_ms >= state.fetch_deadline_ms:
        if replica.can_stand:
            replica.become_prospective()
            return True
        state.asks_others = True
        state.has_fetched = False
        state.leader = replica.next_address(state)
        state.fetch_deadline_ms = replica.now_ms + replica.config.fetch_timeout_ms
    if not is_able_to_fetch(replica):
        return False
    if state.asks_others:
        ask_anybody(replica, but=state)
        return False
    if not replica.is_ready(state.leader):
        return False
    wanted = replica.wanted_voters() if _may_ask_for_voters(replica, state) else None
    if wanted is not None:
        state.voter_request_ms = replica.now_ms + replica.config.fetch_timeout_ms
        replica.send(state.leader, wanted)
    elif state.download is None:
        replica.send(state.leader, _fetch(replica))
    elif not state.download.is_writing:
        replica.send(state.leader, _fetch_snapshot(replica, state.download))
    return False


def on_voter_response(replica: Replica, pending: Pending, response: VoterResponse) -> None:
    """Take the leader's answer about this voter; after an error the request is repeated."""
    state = replica.state
    if response.error is not ErrorCode.NONE:
        replica.back_off(pending.to)
    elif isinstance(state, Follower) and isinstance(pending.request, UpdateVoterRequest):
        state.has_reported = True


def _may_ask_for_voters(replica: Replica, state: Follower) -> bool:
    return state.has_fetched and replica.now_ms >= state.voter_request_ms


def is_able_to_fetch(replica: Replica) -> bool:
    """True if the log's end may be sent: for voters and controllers only once it is flushed.

    A broker's log is flushed when a segment is full, and before a snapshot.
    """
    if replica.busy:
        return False
    must_be_flushed = replica.config.can_vote or replica.is_segment_full
    if must_be_flushed and replica.log.flushed_end < replica.log.end_offset:
        replica.flush()
        return False
    return True


def ask_anybody(replica: Replica, but: Follower | None = None) -> None:
    """Send a Fetch to one of the other controllers to find the leader."""
    if replica.pending or replica.closing_deadline_ms is not None:
        return
    node = replica.next_to_ask(None if but is None else but.leader)
    if node is not None and is_able_to_fetch(replica):
        replica.send(node, _fetch(replica))


def _fetch(replica: Replica) -> FetchRequest:
    known = replica.high_watermark
    return FetchRequest(
        replica=replica.key,
        epoch=replica.epoch,
        offset=replica.log.end_offset,
        last_fetched_epoch=replica.log.last_epoch,
        high_watermark=known if known >= 0 else UNKNOWN_HIGH_WATERMARK,
        max_wait_ms=replica.config.fetch_max_wait_ms,
        max_bytes=replica.config.fetch_max_bytes,
    )


def _fetch_snapshot(replica: Replica, download: Download) -> FetchSnapshotRequest:
    return FetchSnapshotRequest(
        replica=replica.key,
        epoch=replica.epoch,
        snapshot_id=download.snapshot_id,
        position=download.position,
        max_bytes=replica.config.snapshot_max_bytes,
    )


def poll_unattached_asks(replica: Replica, state: Unattached) -> None:
    """Look for a leader during the election timeout."""
    if not replica.is_sole and state is replica.state:
        ask_anybody(replica)


# -- answers of Fetch -------------------------------------------------------------------------


def on_fetch_failure(replica: Replica, pending: Pending) -> None:
    """Take a missing answer: turn from the leader to the others, or back to it."""
    if isinstance(replica.state, Follower):
        replica.state.asks_others = pending.to == replica.state.leader


def on_fetch_response(replica: Replica, pending: Pending, response: FetchResponse) -> None:
    """Take the answer to a Fetch; the caller has checked epoch and leader."""
    state, request = replica.state, pending.request
    if not isinstance(state, Follower):
        replica.back_off(pending.to)
        return
    state.asks_others = False
    if response.error is not ErrorCode.NONE:
        replica.back_off(pending.to)
        return
    assert isinstance(request, FetchRequest)
    is_ours = request.offset == replica.log.end_offset and request.epoch == replica.epoch
    if not is_ours or replica.busy or state.download is not None:
        return
    _leader_answered(replica, state, pending, response.standing)
    replica.leader_high_watermark = max(replica.leader_high_watermark, response.high_watermark)
    state.has_fetched = True
    state.leader_resigned = False
    if response.log_start_offset >= 0:
        replica.do(NoteLeaderLogStart(response.log_start_offset))
    if response.diverging is not None:
        _cut(replica, response.diverging)
        return
    if response.snapshot_id is not None:
        _begin_download(replica, state, response.snapshot_id)
        return
    if not _append(replica, response):
        replica.back_off(pending.to)
        return
    raise_high_watermark(replica, min(response.high_watermark, replica.log.end_offset))


def _leader_answered(
    replica: Replica, state: Follower, pending: Pending, standing: Standing
) -> None:
    state.fetch_deadline_ms = replica.now_ms + replica.config.fetch_timeout_ms
    replica.leader_answered_ms = replica.now_ms
    if pending.to == state.leader and standing.leader_id == state.leader.id:
        replica.proven_leader, replica.proven_epoch = state.leader, replica.epoch


def raise_high_watermark(replica: Replica, offset: int) -> None:
    """Take over a high watermark; it never falls."""
    if offset > replica.high_watermark:
        replica.high_watermark = offset
        replica.do(AdvanceHighWatermark(offset))


def _append(replica: Replica, response: FetchResponse) -> bool:
    """Append the fetched batches; False if the answer had records but no sound batch."""
    end, epoch = replica.log.end_offset, replica.log.last_epoch
    for batch in response.batches:
        if batch.base_offset != end or not epoch <= batch.epoch <= replica.epoch:
            replica.report(
                f"the leader sent a batch at offset {batch.base_offset} of epoch {batch.epoch} "
                f"where offset {end} of epoch {epoch} to {replica.epoch} was asked for",
                is_error=True,
            )
            return False
        end, epoch = batch.end_offset, batch.epoch
    if response.batches:
        replica.do(Append(response.batches, response.data))
        for batch in response.batches:
            replica.log.append(batch.epoch, batch.base_offset, batch.end_offset)
            replica.history.note(batch)
        if replica.config.can_vote:
            replica.flush()
    if response.fault is not None:
        replica.report(f"damaged records from the leader, asked again: {response.fault}")
        return bool(response.batches)
    return True


def _known_committed(replica: Replica) -> int:
    """End (exclusive) of the records known to be committed, including all in snapshots.

    After a start the high watermark is unknown, but the newest snapshot has an end.
    """
    log = replica.log
    newest = 0 if log.newest_snapshot is None else log.newest_snapshot.id.end_offset
    return max(replica.high_watermark, log.start_offset, newest)


def _cut(replica: Replica, diverging: EpochEnd) -> None:
    """Cut our log at the offset where it diverges from the leader's."""
    log = replica.log
    ours = log.end_of(diverging.epoch)
    end = ours.end_offset
    if ours.epoch == diverging.epoch:
        end = min(end, diverging.end_offset)
    lowest = _known_committed(replica)
    if end < lowest:
        replica.fail(
            f"the leader of epoch {replica.epoch} asks to truncate the log to offset {end}, below "
            f"{lowest}, which is committed"
        )
        return
    if end >= log.end_offset:
        replica.report(
            f"the leader finds our log diverging at epoch {diverging.epoch}, offset "
            f"{diverging.end_offset}, but it agrees there",
            is_error=True,
        )
        return
    log.truncate_to(end)
    replica.history.truncate_to(end)
    replica.busy = True
    replica.do(TruncateLog(end))


def on_truncated(replica: Replica, event: Truncated) -> None:
    """Take the end of a durable truncation."""
    assert event.end_offset == replica.log.end_offset
    replica.busy = False
    replica.log.flushed_end = replica.log.end_offset


# -- snapshots --------------------------------------------------------------------------------


def _begin_download(replica: Replica, state: Follower, snapshot_id: SnapshotId) -> None:
    lowest = _known_committed(replica)
    if snapshot_id.end_offset <= 0 or snapshot_id.end_offset < lowest:
        replica.fail(
            f"the leader of epoch {replica.epoch} asks to load snapshot {snapshot_id}, below "
            f"{lowest}, which is committed"
        )
        return
    state.download = Download(snapshot_id)


def on_fetch_snapshot_response(
    replica: Replica, pending: Pending, response: FetchSnapshotResponse
) -> None:
    """Take a chunk; one that does not fit is ignored, or the download is dropped."""
    state = replica.state
    if not isinstance(state, Follower):
        return
    state.asks_others = False
    download, request = state.download, pending.request
    assert isinstance(request, FetchSnapshotRequest)
    if download is None or request.snapshot_id != download.snapshot_id:
        return
    if response.error is not ErrorCode.NONE:
        replica.report(f"snapshot {request.snapshot_id} cannot be fetched: {response.error.name}")
        replica.drop_download(state)
        replica.back_off(pending.to)
        return
    if response.snapshot_id != request.snapshot_id or response.position != download.position:
        replica.back_off(pending.to)
        return
    _leader_answered(replica, state, pending, response.standing)
    end = response.position + len(response.data)
    is_changed = download.size_bytes not in (0, response.size_bytes)
    if not response.data or end > response.size_bytes or is_changed:
        replica.report(
            f"snapshot {request.snapshot_id}: {len(response.data)} bytes at {response.position} "
            f"do not fit in {response.size_bytes}",
            is_error=True,
        )
        replica.drop_download(state)
        replica.back_off(pending.to)
        return
    download.size_bytes = response.size_bytes
    download.is_writing = True
    replica.do(WriteChunk(download.snapshot_id, response.position, response.data))


def on_chunk_written(replica: Replica, event: ChunkWritten) -> None:
    """Fetch the next chunk, or install the complete snapshot."""
    if replica.stale_chunks:
        replica.stale_chunks -= 1
        return
    state = replica.state
    download = state.download if isinstance(state, Follower) else None
    if download is None or not download.is_writing or download.snapshot_id != event.snapshot_id:
        return
    download.is_writing = False
    download.position = event.position
    if download.position == download.size_bytes:
        assert isinstance(state, Follower)
        state.download = None
        replica.busy = True
        replica.do(InstallSnapshot(download.snapshot_id, download.size_bytes))


def on_snapshot_installed(replica: Replica, event: SnapshotInstalled) -> None:
    """Take a snapshot that replaces the content of the log."""
    end = event.snapshot.id.end_offset
    facts = event.facts
    if facts.kraft_version == 0:
        facts = replica.history.static
    replica.busy = False
    replica.log.restart_at(event.snapshot)
    replica.history.restart_at(end, facts)
    raise_high_watermark(replica, end)
    elected = replica.state
    if isinstance(elected, Prospective | Candidate) and elected.tally.voters != replica.voters.ids:
        elected.tally = Tally(replica.voters, replica.key)  # a new election among these voters
    _keep_waiting(replica)


def on_snapshot_refused(replica: Replica, event: SnapshotRefused) -> None:
    """Fetch a damaged snapshot again."""
    replica.busy = False
    replica.report(f"fetched snapshot {event.snapshot_id} is damaged, fetched again", is_error=True)
    _keep_waiting(replica)


def _keep_waiting(replica: Replica) -> None:
    """Give the leader a new fetch timeout, because no request went to it meanwhile."""
    state = replica.state
    if isinstance(state, Follower) and not state.leader_resigned:
        state.fetch_deadline_ms = replica.now_ms + replica.config.fetch_timeout_ms
