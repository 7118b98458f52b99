from threading import Thread

import pytest

from rlm.config import NO_LIMIT
from rlm.plugin_calls import Cancellation, PluginCalls, TaskCancelledError
from rlm.quota import RateQuota
from runtime.rng import Backoff
from tests.support.sim.clock import ManualClock
from tests.support.sim.rng import SeededRng


def test_bytes_pass_while_the_average_is_below_the_limit_and_wait_above() -> None:
    quota = RateQuota(1_000, window_count=11, window_seconds=1)
    now_ms, passed = 100_000, 0
    start_ms = now_ms
    while now_ms < start_ms + 60_000:
        wait_ms = quota.throttle_ms(500, now_ms)
        if wait_ms == 0:
            passed += 500
        else:
            now_ms += wait_ms
    assert 50_000 < passed < 75_000


def test_one_piece_larger_than_the_limit_passes_at_some_time() -> None:
    quota = RateQuota(1_000)
    assert quota.throttle_ms(1_000_000, 0) == 0
    assert quota.throttle_ms(1, 10) > 0
    assert quota.throttle_ms(1, 20_000) == 0


def test_bytes_count_for_exactly_so_many_windows_as_were_set() -> None:
    quota = RateQuota(1_000, window_count=3, window_seconds=1)
    quota.record(10_000, 0)
    assert quota.throttle_ms(1, 2_999) > 0
    assert quota.throttling(2_999).bytes_per_second > 0
    assert quota.throttling(3_000).bytes_per_second == 0
    assert quota.throttle_ms(1, 3_000) == 0


def test_what_passed_before_a_change_of_the_limit_still_counts() -> None:
    quota = RateQuota(1_000_000)
    assert quota.throttle_ms(100_000, 0) == 0
    quota.set_limit(1_000)
    assert quota.throttle_ms(1, 10) > 0
    quota.set_limit(NO_LIMIT)
    assert quota.throttle_ms(1, 20) == 0


def test_what_had_to_wait_has_not_passed() -> None:
    quota = RateQuota(1_000, window_count=3)
    quota.record(10_000, 0)
    before = quota.throttling(1_000).bytes_per_second
    for _ in range(100):
        assert quota.throttle_ms(1_000_000, 1_000) > 0
    assert quota.throttling(1_000).bytes_per_second == before


def test_pauses_are_told_of_for_a_minute_and_then_forgotten() -> None:
    quota = RateQuota(1_000, window_count=3)
    quota.record(10_000, 0)
    pause_ms = quota.throttle_ms(1, 1_000)
    assert quota.throttling(61_000)[:2] == (pause_ms, pause_ms)
    assert quota.throttling(61_001)[:2] == (0, 0)
    quota.record(10_000, 61_001)
    assert quota.throttle_ms(1, 61_002) > 0
    assert len(quota._throttles) == 1


def test_without_a_limit_nothing_waits() -> None:
    quota = RateQuota(NO_LIMIT)
    assert [quota.throttle_ms(1 << 40, n) for n in range(100)] == [0] * 100


def test_a_minute_of_pauses_is_told_from_one_number_a_second() -> None:
    quota = RateQuota(1)
    for now_ms in range(0, 120_000, 10):
        quota.throttled(7 if now_ms % 1_000 else 30, now_ms)
    told = quota.throttling(120_000)
    assert (told.average_ms, told.longest_ms) == (pytest.approx(7.23), 30)
    assert len(quota._throttles) <= 61
    assert quota.throttling(200_000)[:2] == (0, 0)


def test_pauses_double_from_500_ms_to_30_s_with_a_jitter_of_a_fifth() -> None:
    backoff = Backoff(500, 30_000, 0.2, SeededRng(3))
    pauses = [backoff.next_ms() for _ in range(12)]
    for number, pause in enumerate(pauses):
        plain = min(500 * 2**number, 30_000)
        assert 0.8 * plain <= pause <= min(1.2 * plain, 30_000)
    backoff.reset()
    assert backoff.next_ms() <= 600


def test_after_a_cancellation_no_call_starts_and_running_ones_are_seen() -> None:
    clock, cancellation = ManualClock(), Cancellation()
    calls = PluginCalls(clock)
    with calls.call("rlm-copier", "copy", 1_000, cancellation):
        cancellation.cancel()
        assert calls.running == 1
        clock.advance(1_001)
        overdue = calls.newly_overdue()
        assert [(each.kind, each.abandoned_in_pool) for each in overdue] == [("copy", 1)]
        assert calls.newly_overdue() == []
        assert calls.abandoned == 1
    assert calls.abandoned == calls.running == 0
    with pytest.raises(TaskCancelledError), calls.call("p", "copy", 1, cancellation):
        raise AssertionError("must not start")


def test_a_cancellation_ends_a_wait_at_once() -> None:
    cancellation = Cancellation()
    waiting = Thread(target=cancellation.wait, args=(600_000,), daemon=True)
    waiting.start()
    cancellation.cancel()
    waiting.join(60)
    assert not waiting.is_alive()
