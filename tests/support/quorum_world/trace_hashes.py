"""Prints the trace hashes of some simulated quorums: one line, the same on every Python.

python -m tests.support.quorum_world.trace_hashes

Neither the version of Python nor PYTHONHASHSEED may change it: else a seed that fails on one
machine passes on another.
"""

from tests.support.quorum_world.plan import plan_of
from tests.support.quorum_world.seeds import run_plan

SEEDS = (1, 2, 4)
EVENTS = 800


def main() -> None:
    """Run them all."""
    found = [f"{seed}={run_plan(plan_of(seed), EVENTS).trace_hash:08x}" for seed in SEEDS]
    print(*found)


if __name__ == "__main__":
    main()
