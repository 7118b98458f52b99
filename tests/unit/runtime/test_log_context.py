"""Repeats of a log line: one a minute for each call and subject, and how many were left out."""

import logging

import pytest

from runtime.log_context import LimitedLog, Outage
from runtime.repeats_policy import KEYS_MAX, REPEAT_MS, Repeats
from tests.support.sim.clock import ManualClock

log = logging.getLogger("test")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_repeats_are_one_line_a_minute_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    limited = LimitedLog(clock)

    def fail() -> None:
        limited.error(log, "too many open files")

    for _ in range(100):
        fail()
    clock.advance(REPEAT_MS - 1)
    fail()
    assert lines(caplog) == ["too many open files"]
    clock.advance(1)
    fail()
    assert lines(caplog) == ["too many open files (lines left out: 100)"]
    clock.advance(REPEAT_MS)
    fail()
    assert lines(caplog) == ["too many open files"], "none was left out in that minute"


def test_each_subject_has_its_own_minute(caplog: pytest.LogCaptureFixture) -> None:
    limited = LimitedLog(ManualClock())
    for subject in ("a", "b", "a"):
        limited.warning(log, f"refused {subject}", subject)
    assert lines(caplog) == ["refused a", "refused b"]


def test_each_call_has_its_own_minute(caplog: pytest.LogCaptureFixture) -> None:
    limited = LimitedLog(ManualClock())
    for _ in range(2):
        limited.warning(log, "one")
        limited.warning(log, "two")
    assert lines(caplog) == ["one", "two"]


def test_the_subject_logged_longest_ago_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    limited = LimitedLog(ManualClock())
    for subject in [*range(KEYS_MAX + 1), KEYS_MAX, 0]:
        limited.warning(log, str(subject), subject)
    assert lines(caplog) == [*map(str, range(KEYS_MAX + 1)), "0"]


def test_an_outage_is_a_line_when_it_begins_and_one_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage(log, "copying")
    for reason in ("first", "second"):
        outage.failed(reason)
    assert (outage.failed_attempts, outage.reason) == (2, "second")
    began = lines(caplog)
    assert [one.split(".")[0] for one in began] == ["copying fails: reason=first"]
    outage.succeeded()
    outage.succeeded()
    assert lines(caplog) == ["copying works again: failed_attempts=2"]
    assert outage.reason is None


def test_failures_in_turn_with_successes_are_two_lines_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    outage = Outage(log, "copying", clock)
    for _ in range(10):
        outage.failed("full")
        outage.succeeded()
    assert len(lines(caplog)) == 2
    clock.advance(REPEAT_MS)
    outage.failed("full")
    [line] = lines(caplog)
    assert line.endswith("(lines left out: 9)"), "failures whose ends were not logged"


def test_an_outage_longer_than_a_minute_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    outage = Outage(log, "copying", clock)
    for _ in range(5):
        outage.failed("full")
        clock.advance(REPEAT_MS)
    assert len(lines(caplog)) == 1


def test_a_failure_that_outlasts_its_minute_is_logged_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    outage = Outage(log, "copying", clock)
    outage.failed("full")
    outage.succeeded()
    outage.failed("full")
    lines(caplog)
    clock.advance(REPEAT_MS)
    outage.failed("full")
    outage.succeeded()
    assert [line.split(":")[0] for line in lines(caplog)] == [
        "copying fails",
        "copying works again",
    ]


def test_another_cause_is_logged_a_minute_after_the_first() -> None:
    repeats = Repeats()
    assert repeats.failed("a", 0, "refused") == 0
    assert repeats.failed("a", 1, "timed out") is None
    assert repeats.failed("a", REPEAT_MS, "refused") is None
    assert repeats.failed("a", REPEAT_MS, "timed out") == 2
    assert repeats.ended("a")
    assert not repeats.ended("a")


def test_a_line_has_the_stack_of_its_error(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("odd")
    LimitedLog(ManualClock()).error(log, "failed", exc_info=error)
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert record.filename == "test_log_context.py", "the place of the call, not the filter's"


def test_a_forgotten_subject_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    limited = LimitedLog(ManualClock())
    for _ in range(2):
        limited.warning(log, "one")
        limited.forget()
    assert lines(caplog) == ["one", "one"]
