"""The tiering protocol, searched: a missing rule is caught, and with all rules nothing breaks.

TIDEMARK_MODEL_RUNS=all pytest tests/model    # every run; TIDEMARK_MODEL_SECONDS=600 for each
"""

import os

import pytest
from quick_runs import STATES
from tier_model.all_runs import RUNS
from tier_model.explore import Result, explore, story
from tier_model.shapes import Run

ALL = os.environ.get("TIDEMARK_MODEL_RUNS") == "all"
SECONDS_ENOUGH = 600.0  # each missing rule is caught in less
SECONDS = float(os.environ.get("TIDEMARK_MODEL_SECONDS", SECONDS_ENOUGH))
CHOSEN = [run for run in RUNS if ALL or run.id in STATES]

pytestmark = [pytest.mark.lasts(seconds=8), pytest.mark.timeout(60 + 2 * SECONDS)]


def named(runs: list[Run]) -> list[object]:
    long = pytest.mark.long(seconds=SECONDS)
    return [pytest.param(run, id=run.id, marks=() if run.id in STATES else long) for run in runs]


def searched(run: Run) -> Result:
    return explore(run.model(), states_max=10_000_000, seconds_max=SECONDS)


@pytest.mark.parametrize("run", named([run for run in CHOSEN if run.caught]))
def test_a_missing_rule_is_caught(run: Run) -> None:
    result = searched(run)
    if result.broken is None and not result.exhausted and SECONDS < SECONDS_ENOUGH:
        pytest.skip(f"not found in {result.states} states, cut off at {SECONDS} s")
    assert result.broken is not None, f"{run.name}: {result.verdict}, {result.states} states"
    assert result.states == STATES.get(run.id, result.states)


@pytest.mark.parametrize("run", named([run for run in CHOSEN if not run.caught]))
def test_the_rules_hold(run: Run) -> None:
    result = searched(run)
    if result.broken is not None:
        pytest.fail(f"{run.name}: {result.broken}\n{story(run.model(), result.labels)}")
    if not result.exhausted:
        assert ALL, f"{run.name}: cut off at {result.states} states"
        pytest.skip(f"nothing found in {result.states} states, cut off at {SECONDS} s")
    assert result.states == STATES.get(run.id, result.states)


def test_a_story_is_a_shortest_one_and_can_be_replayed() -> None:
    run = next(run for run in RUNS if run.id == "D25")
    result = searched(run)
    model = run.model()
    assert len(result.labels) == result.depth == 4
    assert story(model, result.labels).count("A*") == 4


def test_every_small_run_exists_and_ids_are_unique() -> None:
    ids = [run.id for run in RUNS]
    assert len(set(ids)) == len(ids)
    assert set(ids) >= set(STATES)
