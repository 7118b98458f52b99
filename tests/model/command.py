"""Explore a model: `python -m tests.model.NAME [--full] [--seconds 600] [part of a name ...]`."""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tests.model.explore import Model, explore
from tests.model.listed import Mutant, Run
from tests.model.stories import text_of


def main(
    name: str, make: Callable[[Any], Model], runs: Iterable[Run], mutants: Iterable[Mutant]
) -> int:
    """Say what is found; the exit code is 1 where that is not what was to be found.

    Args:
        make: the model under some rules.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {name}")
    parser.add_argument("--full", action="store_true", help="also what takes minutes, and mutants")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, each")
    parser.add_argument("names", nargs="*", help="only those with one of these in their names")
    asked = parser.parse_args()
    wrong = 0
    for run in runs:
        if _is_asked(run.name, asked.names) and (run.states is not None or asked.full):
            wrong += not _is_right(run, make(run.rules), asked.seconds)
    for mutant in mutants:
        if asked.full and _is_asked(mutant.name, asked.names):
            rules = replace(mutant.bounds, **mutant.turned)
            run = Run(f"without: {mutant.name}", rules, broken=bool(mutant.story))
            wrong += not _is_right(run, make(rules), asked.seconds)
    return 1 if wrong else 0


def _is_right(run: Run, model: Model, seconds: float) -> bool:
    found = explore(model, seconds=seconds, progress=_say)
    is_right = (found.broken is not None) == run.broken and run.states in (None, found.states)
    _say(f"{'' if is_right else 'WRONG '}{run.name:49} {found}")
    if found.broken:
        _say("    " + "; ".join(text_of(label) for label in found.story))
        _say(f"    {found.broken}")
    return is_right


def _is_asked(name: str, parts: list[str]) -> bool:
    return not parts or any(part in name for part in parts)


def _say(line: str) -> None:
    print(line, flush=True)
