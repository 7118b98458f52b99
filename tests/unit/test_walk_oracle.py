"""The walk's judgement of deletions: each kind that is right, and its nearest wrong neighbour."""

import pytest

from tests.support.brokers.traffic import VALUE_BYTES
from tests.support.walk.oracle import RECORD_BYTES_MAX, History, Piece, Reason, World, covers

LANE = ("tiered", 0)


def remote(name: str, first: int, last: int, ms: int = 0) -> Piece:
    return Piece(LANE, name, first, last, ms, is_remote=True)


def local(first: int, last: int, ms: int = 50) -> Piece:
    return Piece(LANE, f"{first}.log", first, last, ms)


@pytest.fixture
def world() -> World:
    """Offsets 0 to 99, of which 0 to 59 are finished in three remote segments."""
    copies = {name: remote(name, at, at + 19) for name, at in (("a", 0), ("b", 20), ("c", 40))}
    history = History(LANE, is_tiered=True, acknowledged=100, sent=100)
    return World({LANE: history}, copied=copies, finished={"a", "b", "c"})


def test_nothing_explains_the_loss_of_a_finished_segment(world: World) -> None:
    assert world.explain(remote("a", 0, 19)) is None
    assert world.explain(Piece(("unknown", 0), "a", 0, 19)) is None


def test_delete_records_explains_what_is_wholly_below(world: World) -> None:
    world.histories[LANE].deleted_below = 20
    assert world.explain(remote("a", 0, 19)) is Reason.RECORDS
    world.histories[LANE].deleted_below = 19
    assert world.explain(remote("a", 0, 19)) is None


def test_retention_leaves_as_many_bytes_as_the_topic_keeps(world: World) -> None:
    history = world.histories[LANE]
    history.retention_bytes = 80 * RECORD_BYTES_MAX
    assert world.explain(remote("a", 0, 19)) is Reason.RETENTION
    history.retention_bytes += 1
    assert world.explain(remote("a", 0, 19)) is None
    history.retention_bytes = 1_000 * VALUE_BYTES
    assert history.latest_start == 0


def test_a_local_segment_goes_once_all_of_it_is_finished(world: World) -> None:
    assert world.explain(local(15, 45)) is Reason.LOCAL
    assert world.explain(local(45, 60)) is None
    world.finished.remove("b")
    assert world.explain(local(15, 45)) is None


def test_a_local_segment_stays_where_its_copy_was_deleted_before(world: World) -> None:
    world.deleted["b"] = 50
    assert world.explain(local(20, 39, ms=50)) is None
    assert world.explain(local(20, 39, ms=49)) is Reason.LOCAL


def test_a_plain_segment_does_not_go_because_of_copies(world: World) -> None:
    world.histories[LANE].is_tiered = False
    assert world.explain(local(0, 19)) is None


def test_a_second_copy_goes_and_one_that_never_finished(world: World) -> None:
    world.copied["twice"] = remote("twice", 10, 29)
    assert world.explain(remote("twice", 10, 29, ms=50)) is Reason.UNFINISHED
    world.finished.add("twice")
    assert world.explain(remote("twice", 10, 29, ms=50)) is Reason.TWICE
    world.deleted["a"] = 40
    assert world.explain(remote("twice", 10, 29, ms=50)) is None


def test_a_deleted_topic_explains_everything_of_it(world: World) -> None:
    world.deleted_topics.add("tiered")
    assert world.explain(remote("a", 0, 19)) is Reason.TOPIC


def test_a_gap_is_not_covered() -> None:
    pieces = [remote("a", 0, 9), remote("c", 11, 20), remote("b", 5, 8)]
    assert covers(pieces, 0, 9)
    assert not covers(pieces, 0, 12)
    assert covers([*pieces, remote("d", 10, 10)], 0, 20)
    assert not covers([], 0, 0)
