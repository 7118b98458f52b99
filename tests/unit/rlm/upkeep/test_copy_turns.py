"""Whose turn it is to copy, and how long it lasts."""

from random import Random

import pytest

from rlm.upkeep.copy_policy import TURN_MS, TURN_SEGMENTS_MAX, CopyTurn, is_over, place


def served(turns: dict[str, CopyTurn], times: int) -> list[str]:
    """Who gets on, where each waits again at once."""
    present, order = 0, []
    for _ in range(times):
        (present, _), name = min((place(turn, present), name) for name, turn in turns.items())
        turns[name].round = present
        order.append(name)
    return order


def test_in_a_round_each_is_served_once_and_the_largest_lag_first() -> None:
    turns = {"a": CopyTurn(5), "b": CopyTurn(0), "c": CopyTurn(70)}
    assert served(turns, 7) == ["c", "a", "b", "c", "a", "b", "c"]


def test_one_that_nobody_has_looked_at_comes_before_all_others() -> None:
    assert served({"a": CopyTurn(2**62), "new": CopyTurn()}, 2) == ["new", "a"]


def test_who_comes_later_is_served_in_the_present_round_and_not_before_it() -> None:
    assert place(CopyTurn(9, round=2), 7) == (7, -9)
    assert place(CopyTurn(9, round=7), 7) == (8, -9)
    assert place(CopyTurn(0), 7) < place(CopyTurn(9**9, round=7), 7)


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_served_twice_while_another_waits_for_its_first_turn(seed: int) -> None:
    dice = Random(seed)
    turns = {str(at): CopyTurn(dice.randrange(10**9)) for at in range(dice.randrange(2, 20))}
    count, order = len(turns), served(turns, 60)
    for at in range(0, 60 - count, count):
        assert set(order[at : at + count]) == set(turns)


@pytest.mark.parametrize(
    ("copied", "took_ms", "over"),
    [
        (0, 10 * TURN_MS, False),
        (1, TURN_MS - 1, False),
        (1, TURN_MS, True),
        (TURN_SEGMENTS_MAX - 1, 0, False),
        (TURN_SEGMENTS_MAX, 0, True),
    ],
)
def test_a_turn_ends_by_segments_or_by_time_and_copies_at_least_one(
    copied: int, took_ms: int, over: bool
) -> None:
    assert is_over(copied, took_ms) is over
