"""What a follower answers to a consumer, as a table of what it knows."""

import pytest

from broker.replica.follower_reads import FollowerFacts, FollowerRead, Heard, LeaderWord, decide
from tests.support.sim.clock import ManualClock

WAIT_MS = 500
LOCAL, REMOTE = FollowerRead.LOCAL, FollowerRead.REMOTE
NINE, ONE, SIX = (
    FollowerRead.NOT_AVAILABLE,
    FollowerRead.OUT_OF_RANGE,
    FollowerRead.NOT_FOLLOWER,
)


def heard(age_ms: int = 0) -> Heard:
    clock = ManualClock(monotonic_ms=1_000)
    found = Heard(clock, WAIT_MS)
    found.answered(clock.monotonic_ms())
    clock.advance(age_ms)
    return found


def word(log_start: int = 10, age_ms: int = 0) -> LeaderWord:
    return LeaderWord(log_start, heard(age_ms))


def facts(**changes: object) -> FollowerFacts:
    """Its log begins at 10, its disk holds 50 to 100, of which 90 is committed."""
    known: dict[str, object] = {
        "word": word(),
        "log_start": 10,
        "local_start": 50,
        "log_end": 100,
        "visible_end": 90,
        "knows_epoch": True,
    }
    return FollowerFacts(**(known | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offset", "changes", "expected"),
    [
        (50, {}, LOCAL),
        (89, {}, LOCAL),
        (90, {}, LOCAL),  # nothing above the high watermark: an empty answer
        (100, {}, LOCAL),
        (101, {}, NINE),  # the leader may have it
        (60, {"word": None}, SIX),
        (20, {"word": None}, SIX),
        (5, {"word": None}, SIX),
        # Below the local log.
        (49, {}, REMOTE),
        (10, {}, REMOTE),
        (20, {"word": LeaderWord(10, None)}, NINE),
        (60, {"word": LeaderWord(10, None)}, LOCAL),
        (20, {"word": word(age_ms=WAIT_MS + 1)}, REMOTE),  # the log start was never higher
        (20, {"is_recovering": True}, NINE),
        (60, {"is_recovering": True}, LOCAL),
        (20, {"knows_epoch": False}, NINE),
        (40, {"visible_end": 41}, REMOTE),
        (40, {"visible_end": 40}, NINE),
        # Below the log start.
        (9, {}, ONE),
        (9, {"word": word(age_ms=WAIT_MS)}, ONE),
        (9, {"word": word(age_ms=WAIT_MS + 1)}, NINE),
        (9, {"word": LeaderWord(10, None)}, NINE),
        (9, {"word": word(9)}, NINE),  # its own start is higher than its leader's
        (9, {"word": word(-1)}, NINE),  # the leader does not know it
        (20, {"word": word(21)}, ONE),
        (20, {"word": word(21, age_ms=WAIT_MS + 1)}, NINE),
        (60, {"word": word(61)}, ONE),
    ],
)
def test_a_read_at_a_follower(
    offset: int, changes: dict[str, object], expected: FollowerRead
) -> None:
    assert decide(offset, facts(**changes)) is expected


def test_a_word_is_fresh_for_one_wait_of_a_fetch() -> None:
    clock = ManualClock(monotonic_ms=0)
    one = Heard(clock, WAIT_MS)
    assert not one.is_fresh, "nothing was heard"
    one.answered(clock.monotonic_ms())
    clock.advance(WAIT_MS)
    assert one.is_fresh
    clock.advance(1)
    assert not one.is_fresh


def test_an_answer_that_lay_here_while_the_process_slept_is_not_fresh() -> None:
    clock = ManualClock(monotonic_ms=0)
    one = Heard(clock, WAIT_MS)
    clock.advance(WAIT_MS * 5)
    one.answered(0)
    assert not one.is_fresh
    one.answered(WAIT_MS * 5 - 10)
    assert one.is_fresh
