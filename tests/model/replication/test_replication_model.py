"""The model of replicated partitions: all states within small bounds, and a story for each rule.

The full bounds: `python -m tests.model.replication --full`.
"""

from dataclasses import replace

import pytest

from tests.model.replication.explore import Broken, explore
from tests.model.replication.mutants import MUTANTS, Mutant
from tests.model.replication.runs import RUNS, Run
from tests.model.replication.stories import NotOffered, play, text_of
from tests.model.replication.world import Replication

STORIES = [mutant for mutant in MUTANTS if mutant.story]


@pytest.mark.parametrize("run", [run for run in RUNS if run.states], ids=lambda run: run.name)
def test_promises_hold_in_all_states_within_bounds(run: Run) -> None:
    found = explore(Replication(run.rules), seconds=200)
    story = "; ".join(text_of(label) for label in found.story)
    assert (found.broken is not None) == run.broken, f"{found.broken}: {story}"
    # Another number: the rules or the bounds have changed; look whether that was meant.
    assert found.states == run.states


@pytest.mark.parametrize("mutant", STORIES, ids=lambda mutant: mutant.name)
def test_story_breaks_a_promise_without_its_rule(mutant: Mutant) -> None:
    with pytest.raises(Broken):
        _played(Replication(replace(mutant.bounds, **mutant.turned)), mutant.story)


@pytest.mark.parametrize("mutant", STORIES, ids=lambda mutant: mutant.name)
def test_story_breaks_nothing_under_all_rules(mutant: Mutant) -> None:
    try:
        _played(Replication(mutant.bounds), mutant.story)
    except NotOffered:
        return  # The rules do not let it happen.


def _played(model: Replication, story: str) -> None:
    state = play(model, story)
    # Some stories end in a state that is no good place to stay for ever.
    if not any(
        model.is_fair(label) and make() not in (None, state) for label, make in model.steps(state)
    ):
        model.rest(state)


def test_every_mutant_has_a_story_or_a_reason() -> None:
    assert all(bool(mutant.story) != bool(mutant.why) for mutant in MUTANTS)
