"""What one seed decides of a simulated cluster: who is a broker, and what is asked of it."""

from dataclasses import dataclass, fields, replace
from functools import cache
from random import Random
from typing import ClassVar

from broker.config.broker_config import BrokerConfig
from metadata_topic.quorum.config import MetadataLogConfig
from tests.support.quorum_world.plan import PORT, QuorumPlan, plan_of

HEARTBEATS_A_SESSION = 4
"""As in Kafka's defaults: 2 s and 9 s."""


@dataclass(frozen=True, kw_only=True)
class NodesPlan(QuorumPlan):
    """One run's world; `observers` are nodes that are only brokers.

    Attributes:
        combined: voters that are brokers, too.
        askers: clients of the brokers.
        ask_every_ms: mean time between two requests of one of them.
        tier_every_ms: mean time between two questions of a broker's tier.
    """

    world: ClassVar[str] = "nodes"

    combined: tuple[int, ...] = ()
    askers: int = 0
    ask_every_ms: int = 400
    tier_every_ms: int = 500

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """All nodes that are brokers."""
        return (*self.combined, *self.observers)

    @property
    def heartbeat_ms(self) -> int:
        """`broker.heartbeat.interval.ms`."""
        return self.session_ms // HEARTBEATS_A_SESSION

    @property
    def node_settings(self) -> tuple[tuple[str, str], ...]:
        """More settings of each node."""
        return ()

    def log_config(self) -> MetadataLogConfig:
        return replace(QuorumPlan.log_config(self), max_batch_bytes=self.batch_bytes)


@cache
def config_of(
    node_id: int, roles: str, session_ms: int, more: tuple[tuple[str, str], ...] = ()
) -> BrokerConfig:
    """The settings of a node, as far as its handlers ask for them; `more` of a world's own."""
    listeners = []
    if "broker" in roles:
        listeners.append(f"PLAINTEXT://n{node_id}:9092")
    if "controller" in roles:
        listeners.append(f"CONTROLLER://n{node_id}:{PORT}")
    config, _ = BrokerConfig.load({
        "process.roles": roles,
        "node.id": str(node_id),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"n1:{PORT}",
        "log.dirs": "/data",
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(session_ms // HEARTBEATS_A_SESSION),
        **dict(more),
    })  # fmt: skip
    return config


def nodes_plan_of(seed: int) -> NodesPlan:
    """The cluster of a seed: the quorum of the same seed, with brokers beside it."""
    quorum = plan_of(seed)
    rng = Random(f"nodes-plan-{seed}")
    brokers = rng.choice((1, 2, 2, 3))
    combined = rng.choice((0, 0, 1, 2))
    kept = {one.name: getattr(quorum, one.name) for one in fields(quorum)}
    changed = {
        "voters": (1, 2, 3) if len(quorum.voters) < 3 else quorum.voters,
        "observers": tuple(range(101, 101 + brokers)),
        "outsiders": (),
        "brokers": rng.choice((0, 0, 1)),
        "clients": 20,  # as many decisions may wait as of so many at the quorum
        "propose_every_ms": 0,
        "idle_ms": rng.choice((500, 2_000, 8_000)),  # the last is longer than an election
        "loss": min(quorum.loss, 0.05),
        "delay_us": (200, min(quorum.delay_us[1], 20_000)),
        "disk_us": (50, min(quorum.disk_us[1], 10_000)),
        "kinds": (*quorum.kinds, *("hang", "strand") * (1 + len(quorum.kinds) // 6)),
    }
    return NodesPlan(
        **{**kept, **changed},
        combined=tuple(range(1, 1 + combined)),
        askers=rng.choice((1, 2, 4)),
        ask_every_ms=rng.choice((100, 300, 800)),
        tier_every_ms=rng.choice((200, 500, 1_500)),
    )
