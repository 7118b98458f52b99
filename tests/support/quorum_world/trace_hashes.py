"""Prints the trace hashes of some simulated runs: a line a world, the same on every Python.

python -m tests.support.quorum_world.trace_hashes

Neither the version of Python nor PYTHONHASHSEED may change it: else a seed that fails on one
machine passes on another.
"""

from tests.support.quorum_world.seeds import PLANS, run_plan

RUNS = {"quorum": (1, 2, 4), "replication": (3,)}
"""Seeds by the name of their world."""
EVENTS = {"quorum": 800, "replication": 500}


def main() -> None:
    """Run them all."""
    for world, seeds in RUNS.items():
        plans = {seed: PLANS[world](seed) for seed in seeds}
        found = {seed: run_plan(plan, EVENTS[world]) for seed, plan in plans.items()}
        print(world, *(f"{seed}={one.trace_hash:08x}" for seed, one in found.items()))


if __name__ == "__main__":
    main()
