"""The quorum as one replica sees it, read from its core."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kafka_protocol.types import ZERO_UUID
from metadata_topic.quorum.active.ports import Audience
from metadata_topic.quorum.view import ControllerNode, QuorumView, ReplicaProgress
from metadata_topic.raft import role_states
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.voters import ReplicaKey

_Known = Mapping[ReplicaKey, role_states.ReplicaProgress]


class Now(NamedTuple):
    """One moment by two clocks; the core has the monotonic one only."""

    wall_ms: int
    monotonic_ms: int

    def wall_of(self, monotonic_ms: int | None) -> int:
        """Convert a time of the monotonic clock to the wall clock, in ms; None to -1."""
        return -1 if monotonic_ms is None else self.wall_ms - (self.monotonic_ms - monotonic_ms)


def describe_quorum(core: RaftCore, now: Now) -> QuorumView:
    """Describe the quorum; `core` must have started."""
    known, standing = core.leadership, core.replica.standing()
    return QuorumView(
        epoch=standing.epoch,
        leader_id=standing.leader_id,
        leader=standing.leader,
        leader_answered_ms=core.replica.leader_answered_ms if known is None else now.monotonic_ms,
        is_leader=known is not None,
        # A leader has no high watermark before a record of its own epoch is committed. Its value as
        # a follower may be lower than an earlier leader's answers.
        high_watermark=core.high_watermark if known is None else known.high_watermark,
        leader_high_watermark=core.replica.leader_high_watermark,
        voters=tuple(_voters(core, {} if known is None else known.voters, now)),
        observers=() if known is None else tuple(_observers(known.observers, now)),
        nodes=tuple(ControllerNode(one.key.id, one.endpoints) for one in core.voters.voters),
    )


def _voters(core: RaftCore, known: _Known, now: Now) -> Iterator[ReplicaProgress]:
    for voter in core.voters.voters:
        if (
            core.leadership is not None
            and core.voters.has(core.key)
            and voter.key.id == core.key.id
        ):
            # Not the flushed end: others may have committed more. Tiers depend on it.
            end_offset = core.log.end_offset
            yield ReplicaProgress(core.key, end_offset, now.wall_ms, now.wall_ms)
        else:
            progress = known.get(voter.key)
            yield _progress(_heard_key(voter.key, progress), progress, now)


def _heard_key(key: ReplicaKey, known: role_states.ReplicaProgress | None) -> ReplicaKey:
    """Key of a voter, for a static one with the directory that fetches (Kafka names none)."""
    if known is None or key.directory_id != ZERO_UUID:
        return key
    return ReplicaKey(key.id, known.directory_id)


def _observers(known: _Known, now: Now) -> Iterator[ReplicaProgress]:
    for key in sorted(known, key=lambda one: (one.id, one.directory_id)):
        yield _progress(key, known[key], now)


def _progress(
    key: ReplicaKey, known: role_states.ReplicaProgress | None, now: Now
) -> ReplicaProgress:
    if known is None:
        return ReplicaProgress(key)
    last_fetch_ms, caught_up_ms = known.last_fetch_ms, known.last_caught_up_ms
    return ReplicaProgress(
        key, known.end_offset, now.wall_of(last_fetch_ms), now.wall_of(caught_up_ms)
    )


def audience_of(core: RaftCore) -> Audience:
    """Replicas that would read a record written by this leader."""
    known = core.leadership
    seen = () if known is None else (one.last_fetch_ms for one in known.observers.values())
    return Audience(
        has_other_voters=not core.voters.is_sole(core.key),
        observer_seen_ms=max((one for one in seen if one is not None), default=None),
    )
