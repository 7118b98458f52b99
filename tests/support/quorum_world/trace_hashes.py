"""Prints the trace hashes of some simulated quorums: one line, the same on every Python.

python -m tests.support.quorum_world.trace_hashes

Neither the version of Python nor PYTHONHASHSEED may change it: else a seed that fails on one
machine passes on another.
"""

from tests.support.quorum_world.kind import RAFT
from tests.support.raft.kinds import CORE
from tests.support.raft.seeds import run_plan

SEEDS = ((CORE, (1, 2, 76)), (RAFT, (1, 4)))
EVENTS = 800


def main() -> None:
    """Run them all."""
    found = [
        f"{kind.name}-{seed}={run_plan(kind, kind.plan_of(seed), EVENTS).trace_hash:08x}"
        for kind, seeds in SEEDS
        for seed in seeds
    ]
    print(*found)


if __name__ == "__main__":
    main()
