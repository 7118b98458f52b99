"""The kind of simulated quorum whose nodes are the product's replicas."""

from tests.support.quorum_world.plan import plan_of
from tests.support.quorum_world.world import QuorumWorld, simulated
from tests.support.raft.kinds import QUIETER, Kind

RAFT = Kind(
    "raft",
    plan_of,
    lambda plan, lines: QuorumWorld(plan, trace_lines=lines),
    (
        *(change for change in QUIETER if "snapshot_every_ms" not in change),
        {"brokers": 0},
        {"clients": 1},
        {"names": 1},
        {"snapshot_bytes": 1 << 20},
        {"segment_bytes": 1 << 20, "retention_bytes": 1 << 20},
        {"wire": False, "pool_us": (20, 0)},
        {"linger_ms": 0},
    ),
    simulated,
)
