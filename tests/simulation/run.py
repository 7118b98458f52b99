"""Simulates seed after seed until something does not hold.

    make simulate SEEDS=1000-1299 EVENTS=5000
    python -m tests.simulation.run --seeds 1000-1299 --events 5000 [--seconds 180]
    make simulate WORLD=nodes
    make simulate WORLD=replication EVENTS=3000
    python -m tests.simulation.run --seeds 1234 --events 2332 --without 3,7-9 --set loss=0.0

A seed is a whole quorum of the product's own nodes: logs and snapshots on disks, images, the active
controller, clients and brokers. In the world `nodes` brokers are the product's, too, beside
controllers or in their processes; in the world `replication` they keep replicas of partitions.

At the first violation the run is made smaller, its end is printed with the command that replays
it, and the exit status is 1.
"""

import argparse
import ast
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.quorum_world.plan import QuorumPlan
from tests.support.quorum_world.seeds import (
    PLANS,
    Outcome,
    Summary,
    numbers_of,
    replay_line,
    run_plan,
    run_seeds,
    shrink,
)

PROGRESS_SECONDS = 10.0
TRACE_LINES = 120


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--world", choices=sorted(PLANS), default="quorum")
    options.add_argument("--seeds", default="0-99", help="such as 1000-1299, or one number")
    options.add_argument("--events", type=int, default=5000, help="of each seed, before it calms")
    options.add_argument("--seconds", type=float, help="begin no seed after so long")
    options.add_argument("--at-least", type=int, default=0, help="seeds, however long they take")
    options.add_argument("--processes", type=int, default=1, help="so many seeds at once")
    options.add_argument("--without", default="", help="numbers of faults to leave out")
    options.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="changes")
    options.add_argument("--plain", action="store_true", help="make no failure smaller")
    options.add_argument("--trace", type=int, default=TRACE_LINES, help="lines of a failure")
    return options


def changed(plan: QuorumPlan, changes: Sequence[str], without: str) -> QuorumPlan:
    """A seed's plan with what the command line says."""
    values: dict[str, Any] = {}
    for change in changes:
        name, _, value = change.partition("=")
        values[name] = ast.literal_eval(value)
    if without:
        values["without"] = numbers_of(without)
    return replace(plan, **values)


def main(arguments: Sequence[str]) -> int:
    """Run from the command line; the exit status."""
    options = parser().parse_args(arguments)
    plan_of = PLANS[options.world]
    until_s = None if options.seconds is None else time.monotonic() + options.seconds
    said_s = time.monotonic()
    summary, failed = Summary(), None
    for summary, outcome in run_seeds(
        numbers_of(options.seeds),
        options.events,
        lambda seed: changed(plan_of(seed), options.changes, options.without),
        until_s=until_s,
        seeds_min=options.at_least,
        processes=options.processes,
    ):
        if outcome.violation is not None:
            failed = outcome
        elif time.monotonic() - said_s > PROGRESS_SECONDS:
            said_s = time.monotonic()
            print(f"... {summary}", flush=True)
    print(summary, flush=True)
    if failed is None:
        return 0
    if options.plain:
        print(f"seed {failed.plan.seed}: {failed.violation}")
    else:
        _tell(failed, options)
    return 1


def _tell(failed: Outcome, options: argparse.Namespace) -> None:
    original = PLANS[options.world](failed.plan.seed)
    print(f"seed {failed.plan.seed}, event {failed.events}: {failed.violation}", flush=True)
    print(f"replay: {replay_line(failed, options.events, original)}", flush=True)
    small, events = shrink(failed, options.events)
    again = run_plan(small.plan, events, trace_lines=max(options.trace, 1))
    print("\n".join(again.trace))
    print(f"made smaller: {small.faults - len(small.plan.without)} faults, event {again.events}")
    print(f"{again.violation}")
    print(f"replay: {replay_line(small, events, original)}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
