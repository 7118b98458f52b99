"""Searches every order of events of three Raft cores, bound after bound, while there is time.

    python -m tests.support.raft.growing_scope --seconds 1800

Each line is a bound: how many states it has, or how many were seen when the time was over, and what
the next one may have, as the ratio of the last two exhausted ones says. The exit status is 1 if a
rule is broken; the shortest story of that is printed.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from tests.support.raft.small_scope import Bounds, Found, search

BOUNDS = (
    Bounds(epochs=1, entries=0, timeouts=1),
    Bounds(epochs=1, entries=0, timeouts=2),
    Bounds(epochs=1, entries=1, timeouts=2),
    Bounds(epochs=2, entries=0, timeouts=2),
    Bounds(epochs=2, entries=0, timeouts=2, losses=1),
    Bounds(epochs=2, entries=1, timeouts=2),
    Bounds(epochs=2, entries=0, timeouts=2, crashes=1),
    Bounds(epochs=2, entries=1, timeouts=2, crashes=1),
    Bounds(epochs=3, entries=0, timeouts=3),
    Bounds(epochs=2, entries=1, timeouts=2, losses=1),
    Bounds(epochs=3, entries=1, timeouts=3),
    Bounds(epochs=3, entries=1, timeouts=3, crashes=1),
    Bounds(epochs=3, entries=3, timeouts=4, crashes=2, losses=2),
)


def line_of(found: Found) -> str:
    """A search in a line."""
    how = "exhausted" if found.exhausted else "not exhausted"
    return (
        f"{found.bounds}: {how}, states={found.states} depth={len(found.levels)} "
        f"seconds={found.seconds:.0f}"
    )


def main(arguments: Sequence[str]) -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--states", type=int, default=4_000_000, help="of one bound at most")
    options = parser.parse_args(arguments)
    ends = time.monotonic() + options.seconds
    exhausted: list[Found] = []
    for bounds in BOUNDS:
        left = ends - time.monotonic()
        if left <= 0:
            print(f"{bounds}: no time was left", flush=True)
            break
        found = search(bounds, left, options.states)
        print(line_of(found), flush=True)
        if found.violation is not None:
            print("\n".join((*found.story, str(found.violation))))
            return 1
        if found.exhausted:
            exhausted.append(found)
    if len(exhausted) > 1:
        last, before = exhausted[-1], exhausted[-2]
        guess = last.states * last.states // before.states
        print(f"next bound's estimate: {guess} states, {guess * last.seconds / last.states:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
