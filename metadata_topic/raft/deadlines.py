"""Time of the next step of a replica without events."""

from collections.abc import Iterable

from metadata_topic.raft.leading import begin_due_ms, majority_until_ms
from metadata_topic.raft.messages import Node
from metadata_topic.raft.replica import Replica
from metadata_topic.raft.role_states import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)


def next_deadline_ms(replica: Replica) -> int | None:
    """Return the earliest time above now at which something is due; None if nothing is."""
    times = [t for t in _times(replica) if t is not None and t > replica.now_ms]
    return min(times, default=None)


def _times(replica: Replica) -> Iterable[int | None]:
    yield replica.closing_deadline_ms
    yield from _retries(replica, replica.doubted)
    state = replica.state
    match state:
        case Unattached():
            if replica.can_stand:
                yield state.election_deadline_ms
            if not replica.pending:
                yield from (replica.retry_at(node) for node in replica.anybody())
        case Prospective() | Candidate():
            yield state.election_deadline_ms
            yield from _retries(replica, state.tally.unanswered)
        case Follower():
            yield state.fetch_deadline_ms
            if not state.asks_others:
                yield replica.retry_at(state.leader)
            elif not replica.pending:
                yield from (replica.retry_at(node) for node in replica.anybody())
        case Resigned():
            yield state.election_deadline_ms
            yield from _retries(replica, state.unacknowledged)
        case Leader():
            yield majority_until_ms(replica, state)
            yield from _leader_times(replica, state)


def _retries(replica: Replica, ids: Iterable[int]) -> Iterable[int | None]:
    for voter_id in ids:
        node: Node | None = replica.node_of(voter_id)
        if node is not None:
            yield replica.retry_at(node)


def _leader_times(replica: Replica, state: Leader) -> Iterable[int | None]:
    half_ms = replica.config.fetch_timeout_ms // 2
    for key, progress in state.voters.items():
        node = replica.node_of(key.id)
        retry_at = None if node is None else replica.retry_at(node)
        if retry_at is not None:
            yield max(begin_due_ms(progress, half_ms), retry_at)
    yield state.parked.next_deadline_ms()
    if state.change is not None:
        yield state.change.deadline_ms
