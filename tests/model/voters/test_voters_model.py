"""The model of voters that change: all states within small bounds, and a story for each rule.

The full bounds: `python -m tests.model.voters --full`.
"""

from dataclasses import replace

import pytest

from tests.model.explore import Broken, explore
from tests.model.listed import Mutant, Run
from tests.model.stories import NotOffered, play_to_rest, text_of
from tests.model.voters.mutants import MUTANTS
from tests.model.voters.runs import RUNS
from tests.model.voters.world import ChangingVoters

STORIES = [mutant for mutant in MUTANTS if mutant.story]


@pytest.mark.parametrize("run", [run for run in RUNS if run.states], ids=lambda run: run.name)
def test_promises_hold_in_all_states_within_bounds(run: Run) -> None:
    found = explore(ChangingVoters(run.rules), seconds=200)
    assert found.broken is None, "; ".join(text_of(label) for label in found.story)
    # Another number: the rules or the bounds have changed; look whether that was meant.
    assert found.states == run.states


@pytest.mark.parametrize("mutant", STORIES, ids=lambda mutant: mutant.name)
def test_story_breaks_a_promise_without_its_rule(mutant: Mutant) -> None:
    with pytest.raises(Broken):
        play_to_rest(ChangingVoters(replace(mutant.bounds, **mutant.turned)), mutant.story)


@pytest.mark.parametrize("mutant", STORIES, ids=lambda mutant: mutant.name)
def test_story_breaks_nothing_under_all_rules(mutant: Mutant) -> None:
    try:
        play_to_rest(ChangingVoters(mutant.bounds), mutant.story)
    except NotOffered:
        return  # The rules do not let it happen.


def test_every_mutant_has_a_story_or_a_reason() -> None:
    assert all(bool(mutant.story) != bool(mutant.why) for mutant in MUTANTS)
