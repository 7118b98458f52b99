"""Whether a partition may begin again by the store alone: no replica with records may return."""

import pytest

from tidemark.cluster.asking import PartitionState
from tidemark.remote.restoring import Beginning, RestoreRefusedError, above, why_refused

PARTITION = PartitionState("orders", 0, 1, (1, 2, 3), (1,))


@pytest.mark.parametrize(
    ("sizes", "active", "lost", "says"),
    [
        ({2: 0, 3: 0}, {1, 2, 3}, (), ""),
        ({2: 0}, {1, 2}, (3,), ""),
        ({}, {1}, (2, 3), ""),
        ({}, {1, 2, 3}, (2, 3), ""),
        ({2: 0}, {1, 2}, (), "broker 3 is not there"),
        ({3: 0}, {1, 3}, (3,), "broker 2 is not there"),
        ({2: 0, 3: None}, {1, 2, 3}, (), "does not serve its replica"),
        ({2: 4_711, 3: 0}, {1, 2, 3}, (), "has 4711 bytes. Let it lead"),
        ({2: 0, 3: 0}, {1, 2, 3}, (9,), "broker 9 has no replica"),
        ({2: 0, 3: 0}, {1, 2, 3}, (1,), "leads it"),
        ({2: 0, 3: 0}, {2, 3}, (), "it has no leader"),
    ],
)
def test_it_is_refused_while_a_replica_may_return_that_is_not_named(
    sizes: dict[int, int | None], active: set[int], lost: tuple[int, ...], says: str
) -> None:
    reason = why_refused(PARTITION, sizes, active, lost)
    assert says in reason
    assert bool(reason) == bool(says)


def test_an_end_that_a_person_names_is_not_below_what_was_given() -> None:
    found = Beginning(40, 45, 0)
    assert above(found, None) == found
    assert above(found, 60) == Beginning(40, 60, 0)
    with pytest.raises(RestoreRefusedError, match="below 45 were given"):
        above(found, 44)


def test_what_is_given_up_is_named_before_it_is_asked() -> None:
    assert list(Beginning(40, 40, 0).lines(PARTITION)) == [
        "orders-0, led by broker 1",
        "  new records begin:  at offset 40",
        "  from the store:     what it has of the offsets below 40",
    ]
    given_up, set_aside = list(Beginning(40, 60, 7).lines(PARTITION))[3:]
    assert "offsets 40 to 59, a gap" in given_up
    assert "7 records taken since" in set_aside
