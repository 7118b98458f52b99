"""The states of a group: the table, and what docs/groups.md says of it."""

from pathlib import Path

import pytest

from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.lifecycle import TRANSITIONS, GroupStatus

PAGE = Path(__file__).parents[5] / "docs/groups.md"


def test_page_has_the_table_of_transitions() -> None:
    found: dict[str, set[str]] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0] in {status.value for status in GroupStatus}:
            followers = {name.strip() for name in cells[2].split(",") if name.strip()}
            found.setdefault(cells[0], followers)
    assert found == {
        before.value: {after.value for after in followers}
        for before, followers in TRANSITIONS.items()
    }


@pytest.mark.parametrize("before", GroupStatus)
@pytest.mark.parametrize("after", GroupStatus)
def test_group_moves_only_as_the_table_allows(before: GroupStatus, after: GroupStatus) -> None:
    group = ClassicGroup("g", since_ms=0)
    group.status = before
    if after in TRANSITIONS[before]:
        group.move(after, 7)
        assert (group.status, group.previous, group.since_ms) == (after, before, 7)
    else:
        with pytest.raises(AssertionError):
            group.move(after, 7)
