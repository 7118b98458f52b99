"""The validate of a group under fire sees each kind of broken promise."""

import pytest

from tests.support.groups.fire import commits_in_order, one_owner_each, told_as_stored
from tests.support.groups.offsets_log import Commit, Generation

A, B = ("fire", 0), ("fire", 1)
FIRST = Generation(1, {"anna": frozenset({A, B})})
SECOND = Generation(2, {"anna": frozenset({A}), "berta": frozenset({B})})


def test_what_is_right_passes() -> None:
    told = [FIRST, Commit(A, 3), Commit(B, 2), SECOND, Commit(A, 3), Commit(B, 9)]
    assert commits_in_order(told) == 4
    owners = {"event": "assigned", "member": "berta", "generation": 2, "owned": [list(B)]}
    told_as_stored(one_owner_each(told), [owners])


def test_a_commit_that_goes_back_is_seen() -> None:
    with pytest.raises(AssertionError, match="3 was stored, then 2"):
        commits_in_order([Commit(A, 3), Commit(B, 1), Commit(A, 2)])


def test_two_owners_of_a_partition_are_seen() -> None:
    both = Generation(3, {"anna": frozenset({A}), "berta": frozenset({A})})
    with pytest.raises(AssertionError, match="two owners"):
        one_owner_each([FIRST, both])


def test_a_generation_that_is_stored_in_two_ways_is_seen() -> None:
    with pytest.raises(AssertionError, match="stored twice"):
        one_owner_each([SECOND, Generation(2, {"anna": frozenset({B})})])
    with pytest.raises(AssertionError, match="comes late"):
        one_owner_each([SECOND, FIRST])


def test_an_assignment_that_nobody_stored_is_seen() -> None:
    owned = {"event": "assigned", "member": "berta", "generation": 1, "owned": [list(B)]}
    with pytest.raises(AssertionError, match="nowhere stored"):
        told_as_stored(one_owner_each([FIRST, SECOND]), [owned])
