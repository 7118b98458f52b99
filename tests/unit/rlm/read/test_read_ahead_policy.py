"""How far to load ahead: what a reader's answers and the store's loads say."""

from rlm.read.read_ahead_policy import (
    FIRST_DEPTH,
    RUN_CHUNKS_MAX,
    Pace,
    StoreEstimate,
    after_answer,
    bounded_depth,
    run_chunks,
)

CHUNK = 2 << 20


def proceed(pace: Pace, answers: int, *, every_ms: int, waited_ms: int, load_ms: float) -> Pace:
    for _ in range(answers):
        pace = after_answer(
            pace,
            now_ms=pace.answered_ms + every_ms,
            waited_ms=waited_ms,
            size_bytes=CHUNK // 2,
            chunk_bytes=CHUNK,
            load_ms=load_ms,
            first_byte_ms=load_ms / 2,
        )
    return pace


def test_who_has_just_come_is_no_reader_that_continues() -> None:
    assert Pace().streak == 0
    assert proceed(Pace(), 1, every_ms=10, waited_ms=0, load_ms=40).depth == FIRST_DEPTH


def test_a_reader_that_waits_for_a_far_store_gets_more_and_more() -> None:
    pace = proceed(Pace(), 6, every_ms=20, waited_ms=18, load_ms=200)
    assert pace.depth > FIRST_DEPTH
    assert proceed(pace, 10, every_ms=10, waited_ms=8, load_ms=200).depth > pace.depth


def test_what_a_reader_wants_within_a_load_is_on_its_way() -> None:
    pace = proceed(Pace(), 100, every_ms=10, waited_ms=0, load_ms=100)
    assert pace.depth >= 100 / 10 / 2


def test_a_near_store_needs_little_however_much_its_reader_waits() -> None:
    assert proceed(Pace(), 200, every_ms=2, waited_ms=2, load_ms=2).depth <= 6


def test_a_slow_reader_that_waited_now_and_then_is_not_held_up() -> None:
    pace = proceed(Pace(), 50, every_ms=1_000, waited_ms=40, load_ms=40)
    assert pace.depth <= FIRST_DEPTH


def test_depth_shrinks_when_the_reader_slows_down() -> None:
    fast = proceed(Pace(), 100, every_ms=5, waited_ms=4, load_ms=100)
    slow = proceed(fast, 1_000, every_ms=500, waited_ms=0, load_ms=100)
    assert slow.depth <= FIRST_DEPTH < fast.depth


def test_no_more_is_loaded_ahead_than_was_read() -> None:
    pace = proceed(Pace(), 4, every_ms=1, waited_ms=1, load_ms=10_000)
    assert pace.depth <= pace.read_bytes // CHUNK + FIRST_DEPTH


def test_depth_stays_within_the_share_and_is_at_least_one() -> None:
    pace = Pace(depth=20)
    assert bounded_depth(pace, 6 * CHUNK, CHUNK) == 6
    assert bounded_depth(pace, 0, CHUNK) == 1


def test_requests_grow_with_the_read_ahead_and_leave_each_reader_two() -> None:
    assert run_chunks(1, 1) == 1
    assert run_chunks(8, 1) == 2
    assert run_chunks(16, 1) == 4
    assert run_chunks(3, 8) == 2
    assert run_chunks(100, 8) == RUN_CHUNKS_MAX


def test_good_figures_of_the_store_are_believed_sooner_than_bad_ones() -> None:
    store = StoreEstimate()
    for _ in range(8):
        store.observe(first_byte_ms=2, transfer_ms=10, size_bytes=CHUNK)
    assert store.load_ms(CHUNK) < 15
    store.observe(first_byte_ms=500, transfer_ms=500, size_bytes=CHUNK)
    assert store.load_ms(CHUNK) < 30
    for _ in range(500):
        store.observe(first_byte_ms=100, transfer_ms=20, size_bytes=CHUNK)
    assert store.load_ms(CHUNK) > 100
