"""What one seed decides: the cluster, how it is disturbed, and what it is asked to do.

Every number comes from `random.Random` of a text with the seed in it: the same on every Python and
under any PYTHONHASHSEED. A fault has dice of its own, so that others stay as they are when one is
left out.
"""

from dataclasses import dataclass
from random import Random

from metadata_topic.raft.messages import Node
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet

PORT = 9093
KINDS = (
    *("crash",) * 6,
    *("crash_within_a_step",) * 4,
    *("crash_many",) * 2,
    *("one_way",) * 3,
    *("isolate",) * 4,
    *("split",) * 3,
    *("pause",) * 3,
    *("slow_disk",) * 3,
    "resign",
    *("close",) * 2,
    "lose_disk",
    "bad_network",
    *("stray",) * 2,
    *("forged",) * 2,
)
"""Faults, as often as they happen among others; see `faults`."""


def directory_id(node_id: int, disk_number: int = 0) -> bytes:
    """The directory id of a node's first, second, ... disk."""
    return b"disk" + node_id.to_bytes(6, "big") + disk_number.to_bytes(6, "big")


def key_of(node_id: int) -> ReplicaKey:
    """A node with its first disk."""
    return ReplicaKey(node_id, directory_id(node_id))


def address_of(node_id: int) -> Node:
    """Where a node listens."""
    return Node(node_id, f"n{node_id}", PORT)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run's world. The defaults disturb nothing.

    Attributes:
        voters: ids of the voters.
        observers: ids of brokers' replicas, which cannot vote.
        outsiders: ids of controllers outside the voter set.
        dynamic: voters have directory ids and stand in the log, else `controller.quorum.voters`.
        disturbed: faults happen.
        without: numbers of the faults that are left out.
        kinds: of the faults that happen.
        fault_every_ms: mean time between two faults.
        loss, duplication: chance of a message.
        delay_us: of a message, lowest and mean of what is added.
        disk_us: of a disk operation, the same.
        propose_every_ms: mean time between two rounds of proposals; 0: none.
        snapshot_every_ms: the same for own snapshots and log starts; 0: none.
        fetch_batches: in an answer at most.
        retry_ms: the core's retry backoff.
        clock_skew: clocks run up to this part faster or slower.
    """

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
    snapshot_every_ms: int = 0
    clock_skew: float = 0.0
    fetch_batches: int = 1000
    retry_ms: int = 20

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


def plan_of(seed: int) -> Plan:
    """The world of a seed."""
    dice = Random(f"raft-plan-{seed}")
    voters = dice.choice((1, 2, 3, 3, 3, 3, 4, 5, 5))
    observers = dice.choice((0, 0, 0, 1, 1, 2, 3, 4))
    outsiders = dice.choice((0, 0, 0, 0, 1)) if observers < 5 else 0
    calm = dice.random() < 0.3
    # A seed with few kinds of faults goes deeper into what they do together.
    liked = [kind for kind in dict.fromkeys(KINDS) if dice.random() < 0.6]
    return Plan(
        seed=seed,
        voters=tuple(range(1, voters + 1)),
        observers=tuple(range(101, 101 + observers)),
        outsiders=tuple(range(11, 11 + outsiders)),
        dynamic=dice.random() < 0.6,
        disturbed=True,
        kinds=tuple(kind for kind in KINDS if kind in liked) or KINDS,
        fault_every_ms=dice.choice((150, 400, 800, 2000)),
        loss=0.0 if calm else dice.choice((0.0, 0.01, 0.05, 0.2)),
        duplication=0.0 if calm else dice.choice((0.0, 0.02, 0.1)),
        delay_us=(200, dice.choice((100, 2_000, 20_000, 150_000))),
        disk_us=(50, dice.choice((100, 1_000, 10_000, 100_000))),
        propose_every_ms=dice.choice((30, 100, 300)),
        snapshot_every_ms=dice.choice((50, 200, 1000, 5000)),
        clock_skew=dice.choice((0.0, 0.01, 0.1)),
        fetch_batches=dice.choice((1, 2, 5, 1000)),
        retry_ms=dice.choice((20, 100, 100, 300)),
    )
