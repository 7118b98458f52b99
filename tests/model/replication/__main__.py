"""Explore: `python -m tests.model.replication [--full] [--seconds 600] [part of a name ...]`."""

import argparse
import sys
from dataclasses import replace

from tests.model.replication.explore import explore
from tests.model.replication.mutants import MUTANTS
from tests.model.replication.runs import RUNS
from tests.model.replication.stories import text_of
from tests.model.replication.world import Replication


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model.replication")
    parser.add_argument("--full", action="store_true", help="also what takes minutes, and mutants")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, each")
    parser.add_argument("names", nargs="*", help="only those with one of these in their names")
    asked = parser.parse_args()
    wrong = 0
    for run in RUNS:
        if not _is_asked(run.name, asked.names) or (run.states is None and not asked.full):
            continue
        found = explore(Replication(run.rules), seconds=asked.seconds, progress=_say)
        is_right = (found.broken is not None) == run.broken and run.states in (None, found.states)
        wrong += not is_right
        _say(f"{'' if is_right else 'WRONG '}{run.name:36} {found}")
        if found.broken:
            _tell(found.broken, [text_of(label) for label in found.story])
    for mutant in MUTANTS:
        if not asked.full or not _is_asked(mutant.name, asked.names):
            continue
        rules = replace(mutant.bounds, **mutant.turned)
        found = explore(Replication(rules), seconds=asked.seconds, progress=_say)
        is_right = (found.broken is not None) == bool(mutant.story)
        wrong += not is_right
        _say(f"{'' if is_right else 'WRONG '}without: {mutant.name:40} {found}")
        if found.broken:
            _tell(found.broken, [text_of(label) for label in found.story])
    return 1 if wrong else 0


def _is_asked(name: str, parts: list[str]) -> bool:
    return not parts or any(part in name for part in parts)


def _tell(broken: str, story: list[str]) -> None:
    _say("    " + "; ".join(story))
    _say(f"    {broken}")


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
