"""Which partition directory is opened, begun, refused or put aside: every row, and properties."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_log.manager.placement import FoundReplica, Placement, TargetReplica, place

TOPIC, OTHER = b"t" * 16, b"o" * 16
A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
SHOWN_A = "AQEBAQEBAQEBAQEBAQEBAQ"


def found(
    directory: bytes, topic_id: bytes | None = TOPIC, partition: int | None = 0
) -> FoundReplica:
    return FoundReplica(directory, f"/{directory[0]}/t-0", topic_id, partition)


def empty(directory: bytes) -> FoundReplica:
    return replace(found(directory), holds_records=False)


NEW = TargetReplica(TOPIC, 0, None)
IN_A = TargetReplica(TOPIC, 0, A)
LOST = TargetReplica(TOPIC, 0, None, was_never_served=False, may_be_begun=False, is_lost=True)
BEFORE = TargetReplica(TOPIC, 0, None, was_never_served=False)  # Kafka's, all directories are here
BEFORE_AND_MISSING = replace(BEFORE, may_be_begun=False)


@pytest.mark.parametrize("wanted", [NEW, IN_A, LOST, BEFORE])
def test_what_is_barred_is_neither_opened_nor_begun_nor_put_aside(wanted: TargetReplica) -> None:
    barred = replace(wanted, barred="why")
    for directories in ([], [found(A)], [found(A, OTHER), found(B)]):
        assert place(barred, directories, {A, B, C}) == Placement(offline="why")


@pytest.mark.parametrize(
    ("wanted", "directories", "expected"),
    [
        # Never assigned.
        (NEW, [], Placement(is_begun=True)),
        (NEW, [found(A)], Placement(opened=0)),
        (NEW, [found(A, None, None)], Placement(is_begun=True, aside=(0,))),
        (NEW, [found(A, OTHER)], Placement(is_begun=True, aside=(0,))),
        (NEW, [found(A, TOPIC, 1)], Placement(is_begun=True, aside=(0,))),
        (NEW, [found(A, OTHER), found(B, OTHER)], Placement(is_begun=True, aside=(0, 1))),
        (NEW, [found(A), found(B, OTHER)], Placement(opened=0, aside=(1,))),
        (NEW, [found(A, None), found(B)], Placement(opened=1, aside=(0,))),
        (NEW, [found(A), found(B)], "several log directories"),
        (NEW, [found(A), empty(B)], Placement(opened=0, aside=(1,))),
        (NEW, [empty(A), found(B), empty(C)], Placement(opened=1, aside=(0, 2))),
        (NEW, [empty(A), empty(B)], Placement(opened=0, aside=(1,))),
        (NEW, [empty(A), found(B), found(C)], "several log directories"),
        (NEW, [found(A, None), found(B, None)], Placement(is_begun=True, aside=(0, 1))),
        (NEW, [found(A), found(B), found(C, None)], "several log directories"),
        # Never assigned, and of a time when that proved nothing.
        (BEFORE, [], Placement(is_begun=True)),
        (BEFORE, [found(A)], Placement(opened=0)),
        (BEFORE, [found(A, OTHER)], "those of another topic"),
        (BEFORE, [empty(A), empty(B)], "several log directories"),
        (BEFORE_AND_MISSING, [], "may lie in a log directory that is missing"),
        (BEFORE_AND_MISSING, [found(A)], Placement(opened=0)),
        (BEFORE_AND_MISSING, [found(A, OTHER)], "may lie in a log directory that is missing"),
        # Assigned.
        (IN_A, [], "it lived in log directory " + SHOWN_A),
        (IN_A, [found(A)], Placement(opened=0)),
        (IN_A, [found(A, None, None)], Placement(opened=0)),
        (IN_A, [found(A, None, 0)], Placement(opened=0)),
        (IN_A, [found(A, OTHER)], "those of another partition"),
        (IN_A, [found(A, TOPIC, 1)], "those of another partition"),
        (IN_A, [found(A, OTHER), found(B)], "those of another partition"),
        (IN_A, [found(A), found(B)], Placement(opened=0, aside=(1,))),
        (IN_A, [found(A, None), found(B)], Placement(opened=0, aside=(1,))),
        (IN_A, [found(B), found(A), found(C, OTHER)], Placement(opened=1, aside=(0, 2))),
        (IN_A, [found(B)], Placement(opened=0)),  # moved by hand
        (IN_A, [found(B, None)], "is not there"),
        (IN_A, [found(B, OTHER)], "is not there"),
        (IN_A, [found(B), found(C)], "is not there"),
        # Assigned to a directory without an id that anybody knew.
        (LOST, [], "its log directory is lost"),
        (LOST, [found(A)], Placement(opened=0)),
        (LOST, [found(A, None, None)], Placement(opened=0)),
        (LOST, [found(A), found(B)], "its log directory is lost"),
        (LOST, [found(A, OTHER)], "its log directory is lost"),
    ],
)
def test_every_row(
    wanted: TargetReplica, directories: list[FoundReplica], expected: Placement | str
) -> None:
    placement = place(wanted, directories, {A, B, C})
    if isinstance(expected, Placement):
        assert placement == expected
    else:
        assert expected in placement.offline
        assert placement == Placement(offline=placement.offline)
        for one in directories:
            assert one.where in placement.offline


@pytest.mark.parametrize("directories", [[], [found(B)], [found(B, None)], [found(B, OTHER)]])
def test_while_its_directory_is_missing_nothing_else_is_taken_for_it(
    directories: list[FoundReplica],
) -> None:
    placement = place(IN_A, directories, {B, C})
    assert f"{SHOWN_A} is missing" in placement.offline
    assert f"tidemark directories forget {SHOWN_A}" in placement.offline
    assert (placement.opened, placement.is_begun, placement.aside) == (None, False, ())


def test_a_lost_one_names_its_remedy() -> None:
    assert "tidemark directories forget lost" in place(LOST, [], {A}).offline
    assert "tidemark directories forget lost" in place(BEFORE_AND_MISSING, [], {A}).offline


IDS = st.sampled_from([None, TOPIC, OTHER])
NUMBERS = st.sampled_from([None, 0, 1])
WANTED = st.one_of(
    st.builds(
        TargetReplica,
        st.just(TOPIC),
        st.just(0),
        st.sampled_from([None, A, B]),
        was_never_served=st.booleans(),
        may_be_begun=st.booleans(),
    ),
    st.just(LOST),
)
FOUND = st.dictionaries(st.sampled_from([A, B, C]), st.tuples(IDS, NUMBERS)).map(
    lambda entries: [found(directory, *says) for directory, says in entries.items()]
)


@given(WANTED, FOUND, st.sets(st.sampled_from([A, B, C])))
def test_what_holds_for_whatever_is_found(
    wanted: TargetReplica, directories: list[FoundReplica], others: set[bytes]
) -> None:
    working = others | {one.directory_id for one in directories}
    placement = place(wanted, directories, working)
    outcomes = [placement.opened is not None, placement.is_begun, bool(placement.offline)]
    assert outcomes.count(True) == 1
    if placement.is_begun:
        # Nothing that may have held records is hidden by an empty log.
        assert wanted.directory_id is None
        assert not wanted.is_lost
        assert wanted.may_be_begun
        assert not any(one.is_certain(wanted) for one in directories)
        assert wanted.was_never_served or not directories
    if placement.opened is not None:
        one = directories[placement.opened]
        assert one.topic_id in (None, wanted.topic_id)
        assert one.partition in (None, wanted.partition)
        if wanted.directory_id is not None and one.directory_id != wanted.directory_id:
            assert one.is_certain(wanted)
            assert wanted.directory_id in working
    if placement.offline:
        assert placement.aside == ()
    else:
        left = set(range(len(directories))) - {placement.opened}
        assert set(placement.aside) == left
        assert len(placement.aside) == len(left)


@given(WANTED, FOUND, st.sets(st.sampled_from([A, B, C])))
def test_the_order_of_what_was_found_decides_nothing(
    wanted: TargetReplica, directories: list[FoundReplica], others: set[bytes]
) -> None:
    working = others | {one.directory_id for one in directories}

    def outcome(order: tuple[FoundReplica, ...]) -> object:
        placement = place(wanted, order, working)
        opened = None if placement.opened is None else order[placement.opened]
        aside = frozenset(order[index] for index in placement.aside)
        return opened, placement.is_begun, placement.offline.partition(":")[0], aside

    assert len({outcome(order) for order in permutations(directories)}) == 1
