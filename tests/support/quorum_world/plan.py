"""What one seed decides: the cluster, how it is disturbed, and what it is asked to do.

Every number comes from `random.Random` of a text with the seed in it: the same on every Python and
under any PYTHONHASHSEED. A fault has rng of its own, so that others stay as they are when one is
excluded.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import ClassVar

from local_log.config import LogConfig
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.start.format import METADATA_DIRECTORY
from metadata_topic.raft.messages import Node
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet

PORT = 9093
CLUSTER_ID = "simulated-quorum-simul"
HOME = Path("/data")
METADATA = HOME / METADATA_DIRECTORY
INDEX_BYTES = 1200
BROKERS = 1001
"""The first id of a broker that is nothing but a registration and heartbeats."""
KINDS = (
    *("crash",) * 4,
    *("power_cut",) * 5,
    *("crash_within_a_step",) * 4,
    *("crash_in_disk",) * 5,
    *("crash_many",) * 2,
    "power_cut_all",
    *("one_way",) * 3,
    *("isolate",) * 4,
    *("split",) * 3,
    *("pause",) * 3,
    *("slow_disk",) * 3,
    *("broken_disk",) * 2,
    *("full_disk",) * 2,
    *("wall_jump",) * 2,
    *("resign",) * 2,
    *("close",) * 3,
    *("lose_disk",) * 2,
    *("lose_vote",) * 2,
    *("old_copy",) * 3,
    *("move",) * 2,
    "bad_network",
    "stray",
    *("forged",) * 2,
    *("snapshot",) * 2,
)
"""Faults, as often as they happen among others; see `faults`."""
VOTER_FAULTS = ("lose_disk", "lose_vote", "old_copy", "move")
"""Those of whom the quorum counts on: most seeds have one of them often."""
BLOODLESS = frozenset(
    ("one_way", "isolate", "split", "pause", "slow_disk", "wall_jump", "resign", "bad_network")
)
"""Those that end no process: who led leads again."""
CHANGE_SEEDS = 5_000
"""From here on voters come and go; planted bugs of other things are recorded with seeds below."""
NOT_WITH_CHANGES = ("old_copy",)
"""A copy that knows the voters of before is no fault of the quorum: controllers.md forbids it."""
OF_CHANGES = (*("lose_disk",) * 3, *("move",) * 2)


def directory_id(node_id: int, disk_number: int = 0) -> bytes:
    """The directory id of a node's first, second, ... disk."""
    return b"disk" + node_id.to_bytes(6, "big") + disk_number.to_bytes(6, "big")


def key_of(node_id: int, disk_number: int = 0) -> ReplicaKey:
    """A node with its first, second, ... disk."""
    return ReplicaKey(node_id, directory_id(node_id, disk_number))


def address_of(node_id: int) -> Node:
    """Where a node listens."""
    return Node(node_id, f"n{node_id}", PORT)


@dataclass(frozen=True, slots=True)
class SmallIndexes(MetadataLogConfig):
    """Index files are made in full size and in memory here: that of each segment counts."""

    def log_config(self) -> LogConfig:
        return replace(MetadataLogConfig.log_config(self), segment_index_bytes=INDEX_BYTES)


@dataclass(frozen=True, kw_only=True)
class QuorumPlan:
    """One run's world. The defaults disturb nothing.

    Attributes:
        voters: ids of the voters.
        observers: ids of brokers' replicas, which cannot vote.
        outsiders: ids of controllers outside the voter set.
        dynamic: voters have directory ids and stand in the log, else `controller.quorum.voters`.
        disturbed: faults happen.
        without: numbers of the faults that are excluded.
        kinds: of the faults that happen.
        fault_every_ms: mean time between two faults.
        loss, duplication: chance of a message.
        delay_us: of a message, lowest and mean of what is added.
        disk_us: of a disk operation, the same.
        propose_every_ms: mean time between two calls of clients; 0: none.
        retry_ms: the core's retry backoff.
        clock_skew: clocks run up to this part faster or slower.
        wire: messages between nodes go through the wire's codec.
        linger_ms: `controller.quorum.append.linger.ms`.
        batch_bytes: of a batch; a larger decision is a metadata transaction.
        idle_ms: `metadata.max.idle.interval.ms`.
        session_ms: `broker.session.timeout.ms`.
        segment_bytes, retention_bytes: of log, and of log and snapshots.
        snapshot_bytes: of records between two snapshots.
        chunk_bytes: of a snapshot that is fetched.
        fetch_bytes: of records in an answer.
        pool_us: until a pool begins, lowest and mean of what is added.
        brokers: how many register and send heartbeats.
        names: how many topics' names clients use.
        clients: how many there are.
        patience_ms: how long a client waits.
        change_every_ms: mean time between two changes of voters that are asked for; 0: none. Then
            controllers name their endpoints, and all of them may become voters.
        joins: `controller.quorum.auto.join.enable` of all controllers.
    """

    world: ClassVar[str] = "quorum"

    seed: int = 0
    voters: tuple[int, ...] = (1, 2, 3)
    observers: tuple[int, ...] = ()
    outsiders: tuple[int, ...] = ()
    dynamic: bool = True
    disturbed: bool = False
    without: tuple[int, ...] = ()
    kinds: tuple[str, ...] = KINDS
    fault_every_ms: int = 1000
    loss: float = 0.0
    duplication: float = 0.0
    delay_us: tuple[int, int] = (500, 0)
    disk_us: tuple[int, int] = (500, 0)
    propose_every_ms: int = 0
    clock_skew: float = 0.0
    retry_ms: int = 20
    wire: bool = True
    linger_ms: int = 25
    batch_bytes: int = 8 << 20
    idle_ms: int = 500
    session_ms: int = 9_000
    segment_bytes: int = 1 << 20
    retention_bytes: int = 1 << 20
    snapshot_bytes: int = 1 << 20
    chunk_bytes: int = 1 << 20
    fetch_bytes: int = 8 << 20
    pool_us: tuple[int, int] = (20, 0)
    brokers: int = 0
    names: int = 5
    clients: int = 3
    patience_ms: int = 5_000
    change_every_ms: int = 0
    joins: bool = False

    @property
    def controllers(self) -> tuple[int, ...]:
        """Ids of those that can vote once they are voters."""
        return (*self.voters, *self.outsiders)

    @property
    def leaders(self) -> tuple[int, ...]:
        """Ids of those that may lead some time."""
        return self.controllers if self.change_every_ms else self.voters

    @property
    def nodes(self) -> tuple[int, ...]:
        """All ids."""
        return (*self.voters, *self.outsiders, *self.observers)

    @property
    def voter_set(self) -> VoterSet:
        """What configuration or the format step says; without directory ids if it is static."""
        voters = []
        for node_id in self.voters:
            node = address_of(node_id)
            key = key_of(node_id) if self.dynamic else ReplicaKey(node_id)
            voters.append(Voter(key, (VoterEndpoint("CONTROLLER", node.host, node.port),)))
        return VoterSet(tuple(voters))

    def log_config(self) -> MetadataLogConfig:
        """Settings of the metadata log."""
        return SmallIndexes(
            segment_bytes=self.segment_bytes,
            max_record_bytes_between_snapshots=self.snapshot_bytes,
            max_snapshot_interval_ms=60_000,
            max_retention_bytes=self.retention_bytes,
            max_retention_ms=120_000,
            max_idle_interval_ms=self.idle_ms,
            append_linger_ms=self.linger_ms,
            replay_records_before_snapshot=50,
        )


def _possible(voters: int, *, dynamic: bool) -> list[str]:
    """Faults of voters that can happen among so many."""
    kinds = ["lose_vote"]
    if voters > 2:
        kinds += ["lose_disk", "old_copy"]
    if not dynamic:
        kinds += ["move"] * 3
    return kinds


def quorum_plan_of(seed: int) -> QuorumPlan:
    """The world of a seed."""
    plan = plan_of(seed)
    return plan if seed < CHANGE_SEEDS else _changing(plan)


def _changing(plan: QuorumPlan) -> QuorumPlan:
    """With three to six controllers, of which some vote, and voters that come and go."""
    rng = Random(f"quorum-changes-{plan.seed}")
    voters, controllers = rng.choice((1, 2, 3, 3, 3, 4)), rng.choice((3, 4, 4, 5, 6))
    kinds = [kind for kind in plan.kinds if kind not in NOT_WITH_CHANGES]
    liked = OF_CHANGES * (1 + len(kinds) // 20) if rng.random() < 0.8 else ()
    return replace(
        plan,
        voters=tuple(range(1, 1 + voters)),
        outsiders=tuple(range(11, 11 + max(controllers - voters, 1))),
        observers=plan.observers[: rng.choice((0, 0, 1))],
        dynamic=True,
        kinds=(*kinds, *liked) or ("crash",),
        fault_every_ms=rng.choice((400, 1_000, 2_000)),
        loss=min(plan.loss, 0.05),
        delay_us=(200, min(plan.delay_us[1], 20_000)),
        disk_us=(50, min(plan.disk_us[1], 10_000)),
        brokers=min(plan.brokers, 1),
        clients=2,
        change_every_ms=rng.choice((150, 400, 1_000)),
        joins=rng.random() < 0.3,
    )


def plan_of(seed: int) -> QuorumPlan:
    """The world of a seed without changes of voters; other worlds stand on it, too."""
    rng = Random(f"quorum-plan-{seed}")
    voters = rng.choice((1, 2, 3, 3, 3, 3, 4, 5, 5))
    observers = rng.choice((0, 0, 1, 1, 2, 3, 5))
    dynamic = rng.random() < 0.6
    outsiders = rng.choice((0, 0, 1)) if dynamic and observers < 5 else 0
    calm = rng.random() < 0.3
    kinds = KINDS if rng.random() < 0.8 else tuple(one for one in KINDS if one in BLOODLESS)
    liked = [kind for kind in dict.fromkeys(kinds) if rng.random() < 0.6]
    often = rng.choice(_possible(voters, dynamic=dynamic))
    chosen = tuple(kind for kind in kinds if kind in liked) or kinds
    fault_every_ms = rng.choice((300, 800, 1500, 3000, 6000))
    if often == "move":
        fault_every_ms = max(fault_every_ms, 3000)  # who has moved must have time to be told of
    if often in kinds:
        chosen += (often,) * (1 + len(chosen) // 2)
    return QuorumPlan(
        seed=seed,
        voters=tuple(range(1, voters + 1)),
        observers=tuple(range(101, 101 + observers)),
        outsiders=tuple(range(11, 11 + outsiders)),
        dynamic=dynamic,
        disturbed=True,
        kinds=chosen,
        fault_every_ms=fault_every_ms,
        loss=0.0 if calm else rng.choice((0.0, 0.01, 0.05, 0.2)),
        duplication=0.0 if calm else rng.choice((0.0, 0.02, 0.1)),
        delay_us=(200, rng.choice((100, 2_000, 20_000, 100_000))),
        disk_us=(50, rng.choice((100, 1_000, 10_000, 40_000))),
        propose_every_ms=rng.choice((30, 60, 150)),
        clock_skew=rng.choice((0.0, 0.01, 0.1)),
        retry_ms=rng.choice((20, 100, 100, 300)),
        wire=rng.random() < 0.4,
        linger_ms=rng.choice((0, 5, 25, 100)),
        batch_bytes=rng.choice((350, 500, 1_000, 8 << 20)),
        idle_ms=rng.choice((200, 500, 500, 2000)),
        session_ms=rng.choice((1_500, 3_000, 9_000)),
        segment_bytes=rng.choice((400, 2_000, 20_000, 1 << 20)),
        retention_bytes=rng.choice((500, 4_000, 20_000, 1 << 20)),
        snapshot_bytes=rng.choice((500, 2_000, 10_000, 100_000)),
        chunk_bytes=rng.choice((50, 300, 2_000, 1 << 20)),
        fetch_bytes=rng.choice((100, 1_000, 8 << 20)),
        pool_us=(20, rng.choice((0, 500, 5_000))),
        brokers=rng.choice((0, 1, 2, 3)),
        names=rng.choice((2, 4, 8)),
        clients=rng.choice((2, 4, 6)),
        patience_ms=rng.choice((1_000, 3_000, 8_000)),
    )
