"""A described quorum as text, byte for byte that of Kafka's kafka-metadata-quorum.sh. Pure."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.primitives import uuid_to_text
from tidemark.quorum.description import Endpoint, QuorumDescription, QuorumError, ReplicaState

COLUMNS: Final = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)
_UNKNOWN: Final = -1
_SNAKE: Final = re.compile("(?<=[a-z])(?=[A-Z])")
_NAME_WIDTH: Final = 24


def status_text(quorum: QuorumDescription) -> str:
    """The output of `describe --status`.

    MaxFollowerLag is in records, of the voter whose log is the shortest; MaxFollowerLagTimeMs is
    how long ago it had everything, 0 for the leader itself, -1 if that is not known.

    Raises:
        QuorumError: the leader is no voter.
    """
    values = _status(quorum) | {
        "CurrentVoters": _replicas(quorum, quorum.voters),
        "CurrentObservers": _replicas(quorum, quorum.observers),
    }
    return "".join(f"{name + ':':<{_NAME_WIDTH}}{value}\n" for name, value in values.items())


def status_json(quorum: QuorumDescription) -> dict[str, object]:
    """The same for programs; raises as `status_text`."""
    return {_SNAKE.sub("_", name).lower(): value for name, value in _status(quorum).items()} | {
        name: [json.loads(_replica(one, quorum.endpoints.get(one.id, ()))) for one in replicas]
        for name, replicas in (
            ("current_voters", quorum.voters),
            ("current_observers", quorum.observers),
        )
    }


def _status(quorum: QuorumDescription) -> dict[str, object]:
    leader = quorum.leader
    slowest = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    return {
        "ClusterId": quorum.cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": _lag_ms(leader, slowest),
    }


def replication_json(quorum: QuorumDescription) -> dict[str, object]:
    """The content of `replication_text`, for programs; times are ms since 1970, -1 unknown."""
    rows = [
        {
            "node_id": one.id,
            "directory_id": uuid_to_text(one.directory_id),
            "log_end_offset": one.log_end_offset,
            "lag": lag,
            "last_fetch_timestamp": one.last_fetch_ms,
            "last_caught_up_timestamp": one.last_caught_up_ms,
            "status": status,
        }
        for one, lag, status in _all_replicas(quorum)
    ]
    return {"replicas": rows}


def replication_text(quorum: QuorumDescription, now_ms: int | None = None) -> str:
    """The output of `describe --replication`: a line a replica, the leader first.

    Args:
        quorum: as described.
        now_ms: wall clock, for times as "5 ms ago" (`--human-readable`); None: as they are.

    Raises:
        QuorumError: the leader is no voter; a time lies after `now_ms`.
    """
    rows = [_row(one, lag, status, now_ms) for one, lag, status in _all_replicas(quorum)]
    return table_text(COLUMNS, rows)


def _all_replicas(quorum: QuorumDescription) -> list[tuple[ReplicaState, int, str]]:
    """Each with its lag in records and its status; the leader first."""
    leader = quorum.leader
    followers = [voter for voter in quorum.voters if voter.id != quorum.leader_id]
    groups = (("Leader", [leader]), ("Follower", followers), ("Observer", quorum.observers))
    return [
        (one, leader.log_end_offset - one.log_end_offset, status)
        for status, replicas in groups
        for one in replicas
    ]


def table_text(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lines of cells, each as wide as its column's widest, with a tab behind each."""
    lines = [columns, *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "".join(
        "".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True)) + "\n"
        for line in lines
    )


def _row(one: ReplicaState, lag: int, status: str, now_ms: int | None) -> tuple[str, ...]:
    return (
        str(one.id),
        uuid_to_text(one.directory_id),
        str(one.log_end_offset),
        str(lag),
        _time(one.last_fetch_ms, "last fetch", now_ms),
        _time(one.last_caught_up_ms, "last caught up", now_ms),
        status,
    )


def _time(time_ms: int, what: str, now_ms: int | None) -> str:
    if now_ms is None or time_ms == _UNKNOWN:
        return str(time_ms)
    if not 0 < time_ms <= now_ms:
        raise QuorumError(
            f"a {what} timestamp is {time_ms}, and this machine's clock is at {now_ms}: the clocks "
            "differ; look without --human-readable"
        )
    return f"{now_ms - time_ms} ms ago"


def _lag_ms(leader: ReplicaState, slowest: ReplicaState) -> int:
    if slowest is leader:
        return 0
    if _UNKNOWN in (leader.last_caught_up_ms, slowest.last_caught_up_ms):
        return _UNKNOWN
    return leader.last_caught_up_ms - slowest.last_caught_up_ms


def _replicas(quorum: QuorumDescription, replicas: Iterable[ReplicaState]) -> str:
    shown = [_replica(one, quorum.endpoints.get(one.id, ())) for one in replicas]
    return f"[{', '.join(shown)}]"


def _replica(one: ReplicaState, endpoints: Sequence[Endpoint]) -> str:
    fields = [f'"id": {one.id}']
    if one.directory_id != ZERO_UUID:
        fields.append(f'"directoryId": "{uuid_to_text(one.directory_id)}"')
    if endpoints:
        texts = ", ".join(f'"{_endpoint(endpoint)}"' for endpoint in endpoints)
        fields.append(f'"endpoints": [{texts}]')
    return "{" + ", ".join(fields) + "}"


def _endpoint(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"
