"""Judges what was found of a cluster: green, yellow or red, with a reason for each that is not.

Pure. Red: clients are not served, or nothing can be changed. Yellow: the next loss may do that, or
a node says so of itself. What nobody could look at, such as a page on another machine's loopback,
is shown as unknown and changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidemark.quorum.description import QuorumDescription, ReplicaState
from tidemark.quorum.text import table_text
from tidemark.status.facts import TIER_KEY, ClusterFacts, NodeFacts

GREEN: Final = "green"
YELLOW: Final = "yellow"
RED: Final = "red"
_UNKNOWN: Final = "-"
_SILENT_MS: Final = 3_000
"""A replica that follows fetches at least every 500 ms, the time that the leader lets it wait."""
_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A line about a node.

    Attributes:
        address: host:port; "-" where nobody says it.
        role: leader, follower or observer of the metadata log; "-" where the leader says nothing.
        state: of a broker unfenced or fenced, "silent" where it does not answer; of a controller
            running or silent.
        lag: records of the metadata log that it lacks; None: the leader says nothing.
        tier: of a broker on or off; "-" where it does not say.
        health: of its page; "-" where none could be read.
        page: why health is "-", or the stage of a node that is not running.
    """

    id: int
    address: str
    role: str
    state: str
    lag: int | None
    tier: str
    health: str
    page: str


@dataclass(frozen=True, slots=True)
class Report:
    """A cluster, judged.

    Attributes:
        reasons: why it is not green: red ones first.
        facts: what was judged.
    """

    status: str
    reasons: tuple[str, ...]
    facts: ClusterFacts
    controllers: tuple[NodeRow, ...]
    brokers: tuple[NodeRow, ...]

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        quorum, facts = self.facts.quorum, self.facts
        return {
            "cluster_id": facts.cluster_id,
            "status": self.status,
            "reasons": list(self.reasons),
            "quorum": quorum
            and {
                "leader_id": quorum.leader_id,
                "leader_epoch": quorum.leader_epoch,
                "high_watermark": quorum.high_watermark,
            },
            "controllers": [_fields(one, "tier") for one in self.controllers],
            "brokers": None if facts.brokers is None else [_fields(one) for one in self.brokers],
            "partitions": {"count": facts.partition_count, "offline": facts.offline},
        }

    def text(self) -> str:
        """For a person."""
        facts, quorum = self.facts, self.facts.quorum
        lines = [f"cluster {facts.cluster_id or '(unknown)'}: {self.status}", ""]
        led = "no leader is known"
        if quorum is not None:
            led = (
                f"leader {quorum.leader_id}, epoch {quorum.leader_epoch}, "
                f"high watermark {quorum.high_watermark}"
            )
        lines += [f"controllers: {led}", *_table(self.controllers, has_tier=False)]
        if facts.brokers is not None:
            lines += ["", f"brokers: {len(self.brokers)}", *_table(self.brokers, has_tier=True)]
        if facts.partition_count is not None:
            lines += ["", f"partitions: {facts.partition_count}, offline: {len(facts.offline)}"]
        unknown = [one for one in (*self.controllers, *self.brokers) if one.page]
        if self.reasons or unknown:
            lines += ["", *self.reasons]
            lines += dict.fromkeys(f"node {one.id}: {one.page}" for one in unknown)
        return "\n".join(line.rstrip() for line in lines) + "\n"


def judge(facts: ClusterFacts) -> Report:
    """Say what the facts mean."""
    red: list[str] = []
    yellow: list[str] = []
    if facts.quorum is None and facts.quorum_silence:
        red.append(f"controllers: {facts.quorum_silence}")
    if facts.broker_silence:
        red.append(f"no broker answers: {facts.broker_silence}")
    for node in facts.controllers.values():
        yellow += _of_controller(node, facts.quorum)
    for node in (facts.brokers or {}).values():
        bad, poor = _of_broker(node, facts)
        red, yellow = red + bad, yellow + poor
    if facts.offline:
        shown = ", ".join(facts.offline[:_SHOWN_MAX])
        more = f" and {len(facts.offline) - _SHOWN_MAX} more" * (len(facts.offline) > _SHOWN_MAX)
        red.append(f"partitions without a leader: {shown}{more}")
    if facts.partition_silence:
        yellow.append(f"not all partitions could be looked at: {facts.partition_silence}")
    nodes = {**facts.controllers, **(facts.brokers or {})}  # a combined node has one page
    for node in nodes.values():
        if node.page is not None and node.page.status in (RED, YELLOW):
            reasons = node.page.reasons or (f"its health is {node.page.status}",)
            into = red if node.page.status == RED else yellow
            into += [f"node {node.id}: {one}" for one in reasons]
    status = RED if red else YELLOW if yellow else GREEN
    return Report(
        status,
        tuple(dict.fromkeys(red + yellow)),
        facts,
        tuple(_row(one, facts, "running") for one in facts.controllers.values()),
        tuple(
            _row(one, facts, "fenced" if one.is_fenced else "unfenced")
            for one in (facts.brokers or {}).values()
        ),
    )


def _of_controller(node: NodeFacts, quorum: QuorumDescription | None) -> list[str]:
    if node.silence:
        return [f"controller {node.id} does not answer: {node.silence}"]
    if quorum is None or not any(one.id == node.id for one in quorum.voters):
        return []
    return [
        f"controller {node.id} does not follow the leader: {text}"
        for text in _behind(_replica(quorum, node.id), quorum)
    ]


def _of_broker(node: NodeFacts, facts: ClusterFacts) -> tuple[list[str], list[str]]:
    """What is red and what is yellow."""
    red, yellow = [], []
    if node.is_fenced:
        red.append(f"broker {node.id} is fenced: the active controller takes no heartbeat from it")
    if node.silence:
        red.append(f"broker {node.id} does not answer: {node.silence}")
    elif not node.is_fenced and facts.quorum is not None:
        yellow += [
            f"broker {node.id} does not fetch the metadata log: {text}"
            for text in _behind(_replica(facts.quorum, node.id), facts.quorum)
        ]
    return red, yellow


def _replica(quorum: QuorumDescription, node_id: int) -> ReplicaState | None:
    """A voter, or an observer that fetched lately.

    After the loss of a disk the leader shows two observers of one id for minutes: the directory
    that is lost, and the one in its place. The one that fetched last counts.
    """
    found = [one for one in quorum.voters if one.id == node_id]
    found = found or [one for one in quorum.observers if one.id == node_id]
    return max(found, key=lambda one: one.last_fetch_ms, default=None)


def _behind(replica: ReplicaState | None, quorum: QuorumDescription) -> Iterable[str]:
    """Say why a replica does not follow; times are the leader's, so that clocks may differ."""
    if replica is None:
        return ["the leader knows of no fetch"]
    if replica.id == quorum.leader_id:
        return []
    leader = _replica(quorum, quorum.leader_id)
    if replica.last_fetch_ms < 0:
        return ["it has never fetched"]
    if leader is None:
        return []
    silent_ms = max(leader.last_fetch_ms, leader.last_caught_up_ms) - replica.last_fetch_ms
    return [f"its last fetch was {silent_ms} ms ago"] if silent_ms > _SILENT_MS else []


def endangered_quorum(node_id: int, quorum: QuorumDescription) -> list[str]:
    """Say why most voters would not follow without a node; nothing where it is no voter."""
    if not any(one.id == node_id for one in quorum.voters):
        return []
    left = [one.id for one in quorum.voters if one.id != node_id and not _behind(one, quorum)]
    needed = len(quorum.voters) // 2 + 1
    if len(left) >= needed:
        return []
    return [
        f"{len(left)} of {len(quorum.voters)} controllers would follow, and {needed} have to: no "
        "topic could be changed, and no leader elected"
    ]


def _row(node: NodeFacts, facts: ClusterFacts, state: str) -> NodeRow:
    role, lag = _UNKNOWN, None
    if facts.quorum is not None:
        role, lag = _place(facts.quorum, node.id)
    tier = {"true": "on", "false": "off"}.get(node.settings.get(TIER_KEY, ""), _UNKNOWN)
    page = node.page
    return NodeRow(
        id=node.id,
        address=_UNKNOWN if node.address is None else f"{node.address[0]}:{node.address[1]}",
        role=role,
        state="silent" if node.silence else state,
        lag=lag,
        tier=tier,
        health=(page.status if page else "") or _UNKNOWN,
        page=_note(node),
    )


def _note(node: NodeFacts) -> str:
    page = node.page
    if page is None:
        return ""
    if not page.status:
        return f"its health is unknown: {'; '.join(page.reasons)}"
    return "" if page.stage == "running" else page.stage


def _place(quorum: QuorumDescription, node_id: int) -> tuple[str, int | None]:
    replica, leader = _replica(quorum, node_id), _replica(quorum, quorum.leader_id)
    if replica is None:
        return _UNKNOWN, None
    if node_id == quorum.leader_id:
        return "leader", 0
    role = "follower" if replica in quorum.voters else "observer"
    return role, None if leader is None else leader.log_end_offset - replica.log_end_offset


def _fields(row: NodeRow, *without: str) -> dict[str, object]:
    names = ("id", "address", "role", "state", "lag", "tier", "health", "page")
    return {name: getattr(row, name) for name in names if name not in without}


def _table(rows: Iterable[NodeRow], *, has_tier: bool) -> list[str]:
    columns = ["NodeId", "Address", "Role", "State", "Lag", "Health"]
    cells = [
        [
            *(str(one.id), one.address, one.role, one.state),
            *(_UNKNOWN if one.lag is None else str(one.lag), one.health),
            *([one.tier] if has_tier else []),
        ]
        for one in rows
    ]
    columns += ["Tier"] if has_tier else []
    return table_text(columns, cells).splitlines()
