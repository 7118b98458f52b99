"""What one seed decides of a cluster with replicated partitions: topics, and who writes to them."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from random import Random
from typing import ClassVar, NamedTuple

from tests.support.nodes_world.plan import NodesPlan, nodes_plan_of
from tests.support.quorum_world.plan import HOME

LOGS = Path("/logs")
"""The only log directory of a broker; the metadata log lies on another one."""
DATA_PORT = 9092
DURABLE = "durable"
"""A topic whose records are on the disks of its members before they are committed."""
TIERED = "tiered"
"""A topic of which every closed segment goes to the remote tier."""
DOOMED = "doomed-"
"""Such topics, too, each of which is deleted after a while."""
GROWN_SEEDS = 100
"""From here on plans are larger; planted bugs are recorded with plans of below."""
TIER_SEEDS = 300
"""From here on each broker has a remote tier, and one topic more is tiered."""
FOLLOWER_SEEDS = 600
"""From here on consumers also ask followers, of every third seed without a remote tier."""
DENSE_SEEDS = 1_000
"""From here on every second seed has nothing but the tiered topic, and faults of its tiers."""
WIDE_SEEDS = 2_000
"""From here on such a one has a store that lies, and tiered topics are deleted."""
MOVE_SEEDS = 3_000
"""From here on partitions get other replicas, and every second seed is such a wide one."""
BROKERS_MAX = 5
NOT_HERE = ("lose_disk", "lose_vote", "old_copy", "move", "stray", "forged")
"""Faults of voters and frames of strangers are the quorum's matter."""
OF_REPLICAS = (
    *("end_leader",) * 5,
    *("end_follower",) * 3,
    *("cut_leader",) * 4,
    *("cut_follower",) * 4,
    *("pause_leader",) * 2,
    *("elect",) * 4,
    *("lose_logs",) * 2,
    *("power_of_two",) * 1,
    *("close",) * 3,
)

OF_TIERS = (
    *("end_tier",) * 6,
    *("store_away",) * 3,
    *("store_slow",) * 2,
    *("store_loses_answers",) * 2,
)

OF_DENSE = (
    *OF_REPLICAS,
    *OF_TIERS,
    *("lose_logs",) * 4,
    *("crash_within_a_step", "crash_in_disk", "power_cut") * 2,
)

OF_WIDE = (*("store_lies",) * 20, *("lose_metadata",) * 8)
MOVES_OF_10 = 3
"""So many of ten faults are moves."""


class TierPlan(NamedTuple):
    """The remote tier, and the topic that is tiered.

    Attributes:
        partitions: of the topic; each has three replicas.
        segment_bytes: of them.
        retention_bytes: total retention; -1: none.
        local_bytes: local retention.
        is_unclean: the topic allows unclean leaders.
        pass_ms: `remote.log.manager.task.interval.ms`; local retention looks half as often.
        ends_bootstraps: a broker on a new disk ends, mostly, while it builds a log beside.
    """

    partitions: int = 1
    segment_bytes: int = 400
    retention_bytes: int = -1
    local_bytes: int = 1
    is_unclean: bool = False
    pass_ms: int = 2_000
    ends_bootstraps: bool = False


class TopicPlan(NamedTuple):
    """A topic: so many partitions, with so many replicas each."""

    partitions: int
    replicas: int
    min_insync: int
    is_unclean: bool = False


TIER_SETTINGS = (
    ("remote.log.storage.system.enable", "true"),
    ("remote.log.storage.manager.class.name", "tests.none:Loaded"),
    ("remote.log.manager.copier.thread.pool.size", "2"),
    ("remote.log.manager.expiration.thread.pool.size", "2"),
    ("remote.log.reader.threads", "4"),
    ("remote.log.manager.task.retry.backoff.ms", "200"),
    ("remote.log.manager.task.retry.backoff.max.ms", "2000"),
    ("rlmm.config.remote.log.metadata.consume.wait.ms", "6000"),
    ("tidemark.cluster.secret.file", "/secret"),
    ("tidemark.follower.bootstrap.hold.ms", "5000"),
    ("tidemark.remote.copy.max.ms", "15000"),
    ("tidemark.remote.call.max.ms", "8000"),
    ("tidemark.remote.claim.interval.ms", "20000"),
)

REMOVAL_SETTINGS = (
    ("rlmm.config.remote.log.metadata.topic.num.partitions", "2"),
    ("rlmm.config.remote.log.metadata.topic.replication.factor", "3"),
    ("rlmm.config.remote.log.metadata.topic.min.isr", "2"),
    ("tidemark.remote.delete.grace.ms", "3000"),
)


@dataclass(frozen=True, kw_only=True)
class ReplicationPlan(NodesPlan):
    """One run's world.

    Attributes:
        topics: what is created at the beginning.
        producers: how many there are; every second one is idempotent.
        produce_every_ms: mean time between two batches of one of them.
        consumers: how many there are without a group.
        follower_readers: consumers that ask followers.
        groups: how many groups there are, of one consumer each.
        offsets_partitions: of `__consumer_offsets`.
        lag_ms: `replica.lag.time.max.ms`.
        log_segment_bytes: of partitions.
        fetch_partition_bytes: `replica.fetch.max.bytes`.
        delete_every_ms: mean time between two DeleteRecords; 0: none.
        tier: None: no broker has one.
        remove_every_ms: mean life of a tiered topic that is deleted; 0: there is none. Then the
            topic of the remote metadata has leaders, whose tiers remove what is left of topics.
        restores: a partition of which only the store has records is restored.
    """

    world: ClassVar[str] = "replication"

    topics: tuple[TopicPlan, ...] = (TopicPlan(1, 3, 2),)
    producers: int = 2
    produce_every_ms: int = 50
    consumers: int = 1
    follower_readers: int = 0
    groups: int = 0
    offsets_partitions: int = 1
    lag_ms: int = 3_000
    log_segment_bytes: int = 1 << 20
    fetch_partition_bytes: int = 1 << 20
    delete_every_ms: int = 0
    minimum_every_ms: int = 0
    has_durable: bool = False
    tier: TierPlan | None = None
    remove_every_ms: int = 0
    restores: bool = False

    @property
    def node_settings(self) -> tuple[tuple[str, str], ...]:
        tier: tuple[tuple[str, str], ...] = ()
        retention_ms = 5_000
        if self.tier is not None:
            pass_ms = self.tier.pass_ms
            tier = (*TIER_SETTINGS, ("remote.log.manager.task.interval.ms", str(pass_ms)))
            retention_ms = min(retention_ms, 2 * pass_ms)
        if self.remove_every_ms:
            tier = (*tier, *REMOVAL_SETTINGS)
        return (
            *tier,
            ("metadata.log.dir", str(HOME)),
            ("log.dirs", str(LOGS)),
            ("replica.lag.time.max.ms", str(self.lag_ms)),
            ("replica.fetch.wait.max.ms", "300"),
            ("replica.fetch.backoff.ms", "500"),
            ("replica.socket.timeout.ms", "2000"),
            ("replica.fetch.max.bytes", str(self.fetch_partition_bytes)),
            ("log.initial.task.delay.ms", "1000"),
            ("log.retention.check.interval.ms", str(retention_ms)),
            ("log.flush.offset.checkpoint.interval.ms", "3000"),
            ("log.flush.start.offset.checkpoint.interval.ms", "3000"),
            ("replica.high.watermark.checkpoint.interval.ms", "2000"),
            ("offsets.commit.timeout.ms", "1500"),
            ("offsets.load.buffer.size", "500"),
            ("offsets.retention.minutes", str(2**31 - 1)),  # clocks on walls jump
        )


def is_tiered(topic: str) -> bool:
    """Whether it is one of the tiered topics."""
    return topic == TIERED or topic.startswith(DOOMED)


def _is_dense(seed: int) -> bool:
    if WIDE_SEEDS <= seed < MOVE_SEEDS:
        return True
    return seed >= DENSE_SEEDS and seed % 2 == 1


def events_of(seed: int) -> int:
    """How many events of a seed are tried where nobody says it."""
    return 2_500 if _is_dense(seed) or seed >= MOVE_SEEDS else 1_200


def replication_plan_of(seed: int) -> ReplicationPlan:
    """The cluster of a seed."""
    plan = _untiered(seed)
    if seed < TIER_SEEDS:
        return plan
    if _is_dense(seed):
        return _moving(_dense(_tiered(plan)))
    if seed < FOLLOWER_SEEDS:
        return _tiered(plan)
    plan = _tiered(plan) if seed % 3 else plan
    session_ms = 3_000 if seed % 2 else plan.session_ms  # a leader may be silent for long
    return _moving(replace(plan, follower_readers=3, delete_every_ms=400, session_ms=session_ms))


def _moving(plan: ReplicationPlan) -> ReplicationPlan:
    """With four or five brokers, and moves among the faults."""
    if plan.seed < MOVE_SEEDS:
        return plan
    rng = Random(f"replication-moving-{plan.seed}")
    here = len(plan.broker_ids)
    more = max(rng.choice((4, 4, 5)) - here, 0)
    after = max((*plan.broker_ids, 100)) + 1
    moves = 1 + len(plan.kinds) * MOVES_OF_10 // (10 - MOVES_OF_10)
    return replace(
        plan,
        observers=(*plan.observers, *range(after, after + more)),
        kinds=(*plan.kinds, *("reassign",) * moves),
        fault_every_ms=rng.choice((400, 1_000, 2_000)),
    )


def _dense(plan: ReplicationPlan) -> ReplicationPlan:
    """With short passes, so that as many events see more segments come and go."""
    rng = Random(f"replication-dense-{plan.seed}")
    assert plan.tier is not None
    tier = plan.tier._replace(
        partitions=1,
        segment_bytes=rng.choice((250, 400)),
        is_unclean=rng.random() < 0.3,
        pass_ms=rng.choice((300, 1_000)),
        ends_bootstraps=True,
    )
    liked = [kind for kind in dict.fromkeys(OF_DENSE) if rng.random() < 0.6]
    wide = OF_WIDE if plan.seed >= WIDE_SEEDS else ()
    return replace(
        plan,
        voters=(1,),
        combined=(),
        observers=tuple(range(101, 101 + rng.choice((3, 3, 4)))),
        loss=0.0,
        fault_every_ms=rng.choice((600, 1_500)),
        session_ms=1_500,
        lag_ms=min(plan.lag_ms, 2_000),
        delay_us=(200, min(plan.delay_us[1], 2_000)),
        disk_us=(50, min(plan.disk_us[1], 2_000)),
        tier=tier,
        topics=(),
        has_durable=False,
        kinds=(*(kind for kind in OF_DENSE if kind in liked), *wide) or ("end_leader",),
        producers=rng.choice((1, 2)),
        produce_every_ms=rng.choice((20, 40)),
        consumers=1,
        follower_readers=1,
        remove_every_ms=rng.choice((2_000, 6_000)) if wide else 0,
        restores=bool(wide),
        idle_ms=min(plan.idle_ms, 500) if wide else plan.idle_ms,  # an image is confirmed with each
    )


def _tiered(plan: ReplicationPlan) -> ReplicationPlan:
    """With a tiered topic that most batches go to, and as many faults as let it be copied."""
    rng = Random(f"replication-tier-{plan.seed}")
    tier = TierPlan(
        partitions=rng.choice((1, 1, 2)),
        segment_bytes=rng.choice((250, 400, 1_500)),
        retention_bytes=rng.choice((-1, -1, 4_000)),
        local_bytes=rng.choice((1, 1, 800)),
    )
    liked = [kind for kind in dict.fromkeys(OF_TIERS) if rng.random() < 0.7]
    kinds = [kind for kind in OF_TIERS if kind in liked] * (1 + len(plan.kinds) // 20)
    return replace(
        plan,
        tier=tier,
        kinds=(*plan.kinds, *kinds),
        fault_every_ms=rng.choice((1_000, 2_000, 4_000)),
        topics=plan.topics[: rng.choice((0, 0, 1))],
        groups=0,
        producers=rng.choice((1, 2, 4)),
        produce_every_ms=rng.choice((15, 40, 100)),
        consumers=rng.choice((1, 2)),
        delete_every_ms=rng.choice((0, 3_000, 10_000)),
        batch_bytes=max(plan.batch_bytes, 500),  # a registration names the store
    )


def _untiered(seed: int) -> ReplicationPlan:
    plan = _plan_of(seed)
    if seed < GROWN_SEEDS:
        return plan
    plan = _grown(plan)
    if seed % 2:
        return plan
    rng = Random(f"replication-groups-{seed}")
    plan = replace(plan, groups=rng.choice((1, 2, 4)), offsets_partitions=rng.choice((1, 2)))
    if rng.random() < 0.5:
        return plan
    # Few records, so that as many events see coordinators move more often.
    changed = {"producers": 1, "produce_every_ms": 1_000, "topics": (TopicPlan(1, 3, 2),)}
    return replace(plan, **changed, fault_every_ms=min(plan.fault_every_ms, 1_500))  # type: ignore[arg-type]


def _grown(plan: ReplicationPlan) -> ReplicationPlan:
    """With up to five brokers, min.insync.replicas that goes up and down, a durable topic."""
    rng = Random(f"replication-grown-{plan.seed}")
    more = rng.choice((0, 0, 0, 1, 2))
    after = max((*plan.observers, *plan.combined, 100)) + 1
    here = len(plan.observers) + len(plan.combined)
    more = min(more, BROKERS_MAX - here)
    return replace(
        plan,
        observers=(*plan.observers, *range(after, after + more)),
        minimum_every_ms=rng.choice((0, 0, 3_000, 10_000)),
        has_durable=rng.random() < 0.4,
    )


def _plan_of(seed: int) -> ReplicationPlan:
    nodes = nodes_plan_of(seed)
    rng = Random(f"replication-plan-{seed}")
    controllers = 3
    combined = rng.choice((0, controllers))
    brokers = rng.choice((3, 3, 3, 4))
    topics = [TopicPlan(rng.choice((1, 2, 3)), 3, 2)]
    if rng.random() < 0.5:
        topics.append(TopicPlan(1, rng.choice((2, 3)), rng.choice((1, 2))))
    if rng.random() < 0.25:
        topics.append(TopicPlan(1, 3, rng.choice((1, 2)), is_unclean=True))
    usual = [kind for kind in nodes.kinds if kind not in NOT_HERE]
    liked = [kind for kind in dict.fromkeys(OF_REPLICAS) if rng.random() < 0.6]
    kinds = [kind for kind in OF_REPLICAS if kind in liked] * (1 + len(usual) // 20)
    kept = {one.name: getattr(nodes, one.name) for one in fields(nodes)}
    changed = {
        "voters": tuple(range(1, 1 + controllers)),
        "combined": tuple(range(1, 1 + combined)),
        "observers": tuple(range(101, 101 + brokers - min(combined, brokers))),
        "kinds": (*usual, *kinds) or ("crash",),
        "brokers": 0,
        "askers": 0,
        "fault_every_ms": rng.choice((500, 1_500, 3_000, 6_000)),
        "session_ms": rng.choice((1_500, 3_000)),
        "linger_ms": min(nodes.linger_ms, 25),
        "tier_every_ms": 5_000,
    }
    return ReplicationPlan(
        **{**kept, **changed},
        topics=tuple(topics),
        producers=rng.choice((1, 2, 4)),
        produce_every_ms=rng.choice((20, 60, 200)),
        consumers=rng.choice((0, 1, 2)),
        lag_ms=rng.choice((1_000, 2_000, 5_000)),
        log_segment_bytes=rng.choice((400, 2_000, 20_000, 1 << 20)),
        fetch_partition_bytes=rng.choice((100, 1_000, 1 << 20)),
        delete_every_ms=rng.choice((0, 0, 2_000, 10_000)),
    )


def undisturbed(**changes: object) -> ReplicationPlan:
    """Three brokers beside one controller, in good weather."""
    plan = ReplicationPlan(voters=(1,), observers=(101, 102, 103), tier_every_ms=5_000)
    return replace(plan, **changes)  # type: ignore[arg-type]
