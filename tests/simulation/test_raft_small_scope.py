"""The Raft core in small scope: all orders of events within bounds, each with its number of states.

Another number means that the core or the scope has changed: look whether that was meant.

    python -m tests.support.raft.growing_scope --seconds 1800
"""

import pytest

from tests.support.raft.small_scope import Bounds, search


@pytest.mark.parametrize(
    ("bounds", "states"),
    [
        (Bounds(epochs=1, entries=0, timeouts=1), 394),
        (Bounds(epochs=1, entries=0, timeouts=2), 10_031),
        (Bounds(epochs=1, entries=0, timeouts=1, changes=1), 4_521),
        (Bounds(epochs=1, entries=0, timeouts=1, changes=1, is_static=True), 2_838),
        pytest.param(
            Bounds(epochs=1, entries=0, timeouts=1, changes=2, is_static=True),
            22_672,
            marks=pytest.mark.long(seconds=60),
        ),
        pytest.param(
            Bounds(epochs=1, entries=0, timeouts=1, changes=2),
            12_189,
            marks=pytest.mark.long(seconds=40),
        ),
        pytest.param(
            Bounds(epochs=2, entries=0, timeouts=2), 27_464, marks=pytest.mark.long(seconds=20)
        ),
        pytest.param(
            Bounds(epochs=1, entries=1, timeouts=2), 59_580, marks=pytest.mark.long(seconds=30)
        ),
    ],
    ids=str,
)
def test_no_order_of_events_breaks_a_rule(bounds: Bounds, states: int) -> None:
    found = search(bounds, seconds=250)
    assert found.violation is None, "\n".join((*found.story, str(found.violation)))
    assert found.exhausted
    assert found.states == states
