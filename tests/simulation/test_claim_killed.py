"""The row "claim" of docs/tiering.md §3: a machine, and a copy of its directories, die before and
after each of its steps; nobody writes to the store beside, or behind, another."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tier.dying_tier import Life, Machine, claim_of, objects_of, stopped
from tests.support.tier.life_steps import Death, DiedError

pytestmark = [pytest.mark.lasts(seconds=10), pytest.mark.lasts(seconds=25)]

HOUR_MS = 3_600_000
INTERVAL_S = 300
AT_REST_S = 20
CLAIM_STEPS = 5
"""Read, the number begun, renamed, and written, then the store's."""

SKEWS = [-HOUR_MS, 0, HOUR_MS]
"""How far the clock of a machine that a copy runs on is ahead of the original's."""


def machine_with_segments(root: Path) -> Machine:
    """Stopped cleanly, with a segment that is not copied yet."""
    machine = stopped(root)
    machine.log.fill(1)
    return machine


def dies(machine: Machine, death: Death, *, down: bool = False) -> Life:
    life = Life(machine, death)
    with pytest.raises(DiedError):
        life.live(down=down)
    life.buried(lands=death.at % 2 == 0)
    return life


def deaths() -> Iterator[Death]:
    for at in range(1, CLAIM_STEPS + 1):
        for is_done in (False, True):
            yield Death(at, is_done)


def older_copies(tmp_path: Path, skew_ms: int) -> Iterator[tuple[Death, Machine, Machine]]:
    """For each death a machine and a copy of it, which runs under a clock that is ahead."""
    for number, death in enumerate(deaths()):
        machine = machine_with_segments(tmp_path / f"{number}")
        copy = machine.copied_to(tmp_path / f"{number}" / "copy")
        copy.wall_ms += skew_ms
        yield death, machine, copy


def is_older_copy(life: Life) -> bool:
    return any("older copy" in reason for reason in life.reasons)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_killed_at_any_step_of_a_start_and_stop_the_claim_stays_its_own(
    tmp_path: Path, is_done: bool
) -> None:
    whole = Life(machine_with_segments(tmp_path / "whole")).live()
    started = len(whole.steps.names)
    whole.stop()
    assert whole.steps.names[:2] == ["read claim", "begin tier-incarnation"]
    assert whole.steps.names.index("write claim") < whole.steps.names.index("send record")
    assert whole.steps.names[started:].count("write claim") == 1, "a clean stop takes it again"
    for at in range(1, len(whole.steps.names) + 1):
        machine = machine_with_segments(tmp_path / f"{at}")
        life = Life(machine, Death(at, is_done))
        with pytest.raises(DiedError):
            life.live().stop()
        life.buried(lands=at % 2 == 0)
        before = claim_of(machine)
        again = Life(machine).live(AT_REST_S)
        assert again.reasons == [], f"step {at} {life.steps.names[-1]}"
        after = claim_of(machine)
        assert before is not None
        assert after is not None
        assert after > before
        machine.check_at_rest()


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_repeated_kills_with_an_unreliable_store_keep_the_machines_claim(
    tmp_path: Path, is_done: bool
) -> None:
    for at in range(1, CLAIM_STEPS + 1):
        machine = machine_with_segments(tmp_path / f"{at}")
        for _ in range(3):
            away = Life(machine).live(AT_REST_S, down=True)
            assert any("claim" in reason for reason in away.reasons)
            away.buried(lands=True)
            dies(machine, Death(at, is_done))
        back = Life(machine).live(AT_REST_S, down=True)
        back.storage.down = False
        back.proceed(120)
        assert back.reasons == []
        machine.check_at_rest()


@pytest.mark.parametrize("skew_ms", SKEWS)
def test_a_copy_killed_at_any_step_is_unhealthy_once_the_original_started(
    tmp_path: Path, skew_ms: int
) -> None:
    for death, machine, copy in older_copies(tmp_path, skew_ms):
        for _ in range(2):
            dies(copy, death)
        wrote = bool(copy.claimed)
        original = Life(machine).live(AT_REST_S)
        assert is_older_copy(original) == wrote, f"{death}: the second to start"
        before = objects_of(machine)
        other = Life(copy).live(AT_REST_S)
        assert is_older_copy(other) == (not wrote), f"{death}: both write, or neither does"
        original.proceed(INTERVAL_S)
        other.proceed(INTERVAL_S)
        assert is_older_copy(original) == wrote
        assert is_older_copy(other) == (not wrote)
        if not wrote:
            assert objects_of(machine) == before


@pytest.mark.parametrize("skew_ms", SKEWS)
def test_of_two_copies_the_second_to_start_is_unhealthy_after_any_kill(
    tmp_path: Path, skew_ms: int
) -> None:
    for death, machine, one in older_copies(tmp_path, skew_ms):
        two = machine.copied_to(one.directory.with_name("two"))
        two.others.append(one), one.others.append(two)
        dies(one, death)
        second = Life(two).live(AT_REST_S)
        assert is_older_copy(second) == bool(one.claimed), f"{death}: it started second"
        first = Life(one).live(AT_REST_S)
        assert is_older_copy(first) == bool(two.claimed), f"{death}: both write"


@pytest.mark.parametrize("skew_ms", SKEWS)
def test_a_copy_of_a_stopped_machine_is_unhealthy_after_a_store_outage(
    tmp_path: Path, skew_ms: int
) -> None:
    for death, machine, copy in older_copies(tmp_path, skew_ms):
        away = Life(copy).live(AT_REST_S, down=True)  # takes incarnations, validates nothing
        away.buried(lands=True)
        original = Life(machine).live(AT_REST_S)
        assert original.reasons == []
        original.stop()
        original.buried(lands=True)
        life = Life(copy, death)
        try:
            life.live()
        except DiedError:
            life.buried(lands=True)
        machine.log.restart()
        assert Life(machine).live(AT_REST_S).reasons == []
        assert is_older_copy(Life(copy).live(AT_REST_S)), death
