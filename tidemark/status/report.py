"""Validates what was found of a cluster: green, yellow or red, with a reason for each that is not.

Pure. Red: clients are not served, or nothing can be changed. Yellow: the next loss may do that, or
a node says so of itself. Parts that could not be read,
such as a page on another machine's loopback, are shown as unknown and change nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.observe.health import by_cause
from tidemark.cluster.table import plain, table
from tidemark.quorum.description import QuorumDescription, ReplicaState
from tidemark.status.facts import TIER_KEY, ClusterFacts, CopyLag, NodeFacts

GREEN: Final = "green"
YELLOW: Final = "yellow"
RED: Final = "red"
_UNKNOWN: Final = "-"
_SILENT_MS: Final = 3_000
"""A replica that follows fetches at least every 500 ms, the time that the leader lets it wait."""
_SHOWN_MAX: Final = 20
_TOPICS_MAX: Final = 10
_TOPICS: Final = ("Topic", "PartitionCount", "RemoteCopyLagSegments", "RemoteCopyLagBytes")
_NO_MAJORITY: Final = "start controllers until most of the voters run; docs/controllers.md"
_NO_BROKER: Final = "start one, or name others: --bootstrap-server, TIDEMARK_BOOTSTRAP_SERVER"
_NO_LEADER: Final = "start the brokers with their replicas: `tidemark topics describe TOPIC`"
_AWAY: Final = "start it again; if its disk or machine is lost: docs/controllers.md"
_CUT_OFF: Final = "it runs and does not reach the leader: look at network, log and disk"
_FENCED: Final = "it is starting, or cannot reach the controllers: see its log"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A line about a node.

    Attributes:
        address: host:port; "-" where unknown.
        role: leader, follower or observer of the metadata log; "-" where the leader says nothing.
        state: of a broker unfenced or fenced, "silent" where it does not answer; of a controller
            running or silent.
        lag: records of the metadata log that it lacks; None: the leader says nothing.
        tier: of a broker on or off; "-" where it does not say.
        health: of its page; "-" where none could be read.
        version: of Tidemark; "-" where its page does not say it.
        page: why health is "-", or the stage of a node that is not running.
    """

    id: int
    address: str
    role: str
    state: str
    lag: int | None
    tier: str
    health: str
    version: str
    page: str


class Reason(NamedTuple):
    """Why a cluster is not green.

    Attributes:
        remedy: the remedy; "" where the reason of a node says it itself.
    """

    text: str
    remedy: str = ""


class TopicRow(NamedTuple):
    """A line about a topic.

    Attributes:
        lag: None where it is not tiered, or the tier's progress is unknown.
    """

    topic: str
    partition_count: int
    lag: CopyLag | None


@dataclass(frozen=True, slots=True)
class Report:
    """A cluster, validated.

    Attributes:
        reasons: why it is not green: unhealthy ones first.
        remedies: the remedy of those whose words do not say it.
        facts: what was validated.
        topics: those that lack most in the remote tier first.
    """

    status: str
    reasons: tuple[str, ...]
    remedies: Mapping[str, str]
    facts: ClusterFacts
    controllers: tuple[NodeRow, ...]
    brokers: tuple[NodeRow, ...]
    topics: tuple[TopicRow, ...]

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        quorum, facts = self.facts.quorum, self.facts
        return {
            "cluster_id": facts.cluster_id,
            "status": self.status,
            "reasons": list(self.reasons),
            "remedies": dict(self.remedies),
            "quorum": quorum
            and {
                "leader_id": quorum.leader_id,
                "leader_epoch": quorum.leader_epoch,
                "high_watermark": quorum.high_watermark,
            },
            "controllers": [_fields(one, "tier") for one in self.controllers],
            "brokers": None if facts.brokers is None else [_fields(one) for one in self.brokers],
            "partitions": {"count": facts.partition_count, "offline": facts.offline},
            "topics": [
                {
                    "topic": one.topic,
                    "partition_count": one.partition_count,
                    "remote_copy_lag_segments": one.lag and one.lag.segments,
                    "remote_copy_lag_bytes": one.lag and one.lag.size_bytes,
                }
                for one in self.topics
            ],
        }

    def text(self, width: int | None = None) -> str:
        """For a person: one screen.

        Args:
            width: columns of the terminal; None: there is none.
        """
        facts, quorum = self.facts, self.facts.quorum
        lines = [f"cluster {facts.cluster_id or '(unknown)'}: {self.status}", ""]
        led = "no leader is known"
        if quorum is not None:
            led = (
                f"leader {quorum.leader_id}, epoch {quorum.leader_epoch}, "
                f"high watermark {quorum.high_watermark}"
            )
        lines += [f"controllers: {led}", *_table(self.controllers, width, has_tier=False)]
        if facts.brokers is not None:
            lines += ["", f"brokers: {len(self.brokers)}"]
            lines += _table(self.brokers, width, has_tier=True)
        if facts.partition_count is not None:
            lines += ["", *self._of_topics(facts.partition_count, width)]
        unknown = [one for one in (*self.controllers, *self.brokers) if one.page]
        if self.reasons or unknown:
            lines += [""]
            for cause in by_cause(self.reasons):
                lines += [plain(cause.text)]
                remedy = self.remedies.get(cause.reason)
                lines += [f"  {plain(remedy)}"] if remedy else []
            lines += dict.fromkeys(plain(f"node {one.id}: {one.page}") for one in unknown)
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _of_topics(self, partition_count: int, width: int | None) -> Iterable[str]:
        offline = len(self.facts.offline)
        yield f"topics: {len(self.topics)}, partitions: {partition_count}, offline: {offline}"
        tiered = [one for one in self.topics if one.lag is not None]
        if tiered:
            cells = [(one.topic, one.partition_count, *(one.lag or ())) for one in tiered]
            yield from table(_TOPICS, cells[:_TOPICS_MAX], width).splitlines()
        if len(tiered) > _TOPICS_MAX:
            yield f"and {len(tiered) - _TOPICS_MAX} more tiered topics"


def validate(facts: ClusterFacts) -> Report:
    """Say what the facts mean."""
    unhealthy: list[Reason] = []
    yellow: list[Reason] = []
    if facts.quorum is None and facts.quorum_silence:
        unhealthy.append(Reason(f"controllers: {facts.quorum_silence}", _NO_MAJORITY))
    if facts.broker_silence:
        unhealthy.append(Reason(f"no broker answers: {facts.broker_silence}", _NO_BROKER))
    for node in facts.controllers.values():
        yellow += _of_controller(node, facts.quorum)
    for node in (facts.brokers or {}).values():
        bad, poor = _of_broker(node, facts)
        unhealthy, yellow = unhealthy + bad, yellow + poor
    if facts.offline:
        shown = ", ".join(facts.offline[:_SHOWN_MAX])
        more = f" and {len(facts.offline) - _SHOWN_MAX} more" * (len(facts.offline) > _SHOWN_MAX)
        unhealthy.append(Reason(f"partitions without a leader: {shown}{more}", _NO_LEADER))
    if facts.partition_silence:
        text = f"not all partitions could be looked at: {facts.partition_silence}"
        yellow.append(Reason(text))
    nodes = {**facts.controllers, **(facts.brokers or {})}  # a combined node has one page
    for node in nodes.values():
        if node.page is not None and node.page.status in (RED, YELLOW):
            reasons = node.page.reasons or (f"its health is {node.page.status}",)
            into = unhealthy if node.page.status == RED else yellow
            into += [
                Reason(f"node {node.id}: {one}", node.page.remedies.get(one, "")) for one in reasons
            ]
    status = RED if unhealthy else YELLOW if yellow else GREEN
    found = dict(unhealthy + yellow)
    return Report(
        status,
        tuple(found),
        {text: remedy for text, remedy in found.items() if remedy},
        facts,
        tuple(_row(one, facts, "running") for one in facts.controllers.values()),
        tuple(
            _row(one, facts, "fenced" if one.is_fenced else "unfenced")
            for one in (facts.brokers or {}).values()
        ),
        _topics(facts),
    )


def _topics(facts: ClusterFacts) -> tuple[TopicRow, ...]:
    lags: dict[str, CopyLag] = {}
    for broker in (facts.brokers or {}).values():
        for topic, lag in broker.copy_lag.items():
            before = lags.get(topic, CopyLag(0, 0))
            lags[topic] = CopyLag(
                before.segments + lag.segments, before.size_bytes + lag.size_bytes
            )
    rows = [TopicRow(topic, count, lags.get(topic)) for topic, count in facts.topics.items()]
    rows.sort(key=lambda one: (-(one.lag.size_bytes if one.lag else -1), one.topic))
    return tuple(rows)


def _of_controller(node: NodeFacts, quorum: QuorumDescription | None) -> list[Reason]:
    if node.silence:
        return [Reason(f"controller {node.id} does not answer: {node.silence}", _AWAY)]
    if quorum is None or not any(one.id == node.id for one in quorum.voters):
        return []
    return [
        Reason(f"controller {node.id} does not follow the leader: {text}", _CUT_OFF)
        for text in _behind(_replica(quorum, node.id), quorum)
    ]


def _of_broker(node: NodeFacts, facts: ClusterFacts) -> tuple[list[Reason], list[Reason]]:
    """The lines that are unhealthy and those that are yellow."""
    unhealthy, yellow = [], []
    if node.is_fenced:
        text = f"broker {node.id} is fenced: the active controller takes no heartbeat from it"
        unhealthy.append(Reason(text, "" if node.silence else _FENCED))
    if node.silence:
        unhealthy.append(Reason(f"broker {node.id} does not answer: {node.silence}", _AWAY))
    elif not node.is_fenced and facts.quorum is not None:
        yellow += [
            Reason(f"broker {node.id} does not fetch the metadata log: {text}", _CUT_OFF)
            for text in _behind(_replica(facts.quorum, node.id), facts.quorum)
        ]
    return unhealthy, yellow


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
        version=node.version or _UNKNOWN,
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
    names = ("id", "address", "role", "state", "lag", "tier", "health", "version", "page")
    return {name: getattr(row, name) for name in names if name not in without}


def _table(rows: Sequence[NodeRow], width: int | None, *, has_tier: bool) -> list[str]:
    if not rows:
        return []
    columns = ["NodeId", "Address", "Role", "State", "Lag", "Health"]
    cells = [
        [
            *(str(one.id), one.address, one.role, one.state),
            *(_UNKNOWN if one.lag is None else str(one.lag), one.health),
            *([one.tier] if has_tier else []),
            one.version,
        ]
        for one in rows
    ]
    columns += ["Tier", "Version"] if has_tier else ["Version"]
    return table(columns, cells, width).splitlines()
