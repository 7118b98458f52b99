"""Run the models by hand: `python tests/model/runs.py [NAMES] [-v] [--seconds N] [--states N]`.

A name is a run (`D13`), a group (`D`), or nothing: all of them, which takes hours. `-v` prints the
story of each counterexample. Exit code 1 when a run does not end as expected.
"""

import argparse
import resource
import sys

from tier_model.all_runs import RUNS
from tier_model.explore import explore, story
from tier_model.shapes import Run


def wanted(run: Run, names: list[str]) -> bool:
    group = run.id.rstrip("0123456789")
    return not names or run.id in names or group in names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("-v", "--verbose", action="store_true", help="print counterexamples")
    parser.add_argument("--seconds", type=float, default=600, help="limit of each run")
    parser.add_argument("--states", type=int, default=5_000_000, help="limit of each run")
    args = parser.parse_args()
    wrong = total = 0
    for run in RUNS:
        if not wanted(run, args.names):
            continue
        model = run.model()
        result = explore(model, states_max=args.states, seconds_max=args.seconds)
        total += result.states
        as_expected = bool(result.broken) == run.caught
        wrong += not as_expected
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"{'  ' if as_expected else '!!'} {run.name:64} {result.verdict:14} "
            f"{result.states:>10,} states  depth {result.depth:>3} {result.seconds:7.1f} s "
            f"{memory:>5} MiB{'  ' + result.broken if result.broken else ''}",
            flush=True,
        )
        if result.broken and (args.verbose or not as_expected):
            print(story(model, result.labels), flush=True)
    print(f"{total:,} states, {wrong} runs not as expected")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
