"""Repeats of a log line: one a minute for each call and subject, and how many were left out."""

import logging

import pytest

from runtime.log_context import REPEAT_MS, SUBJECTS_MAX, LimitedLog, Outage
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
    for subject in [*range(SUBJECTS_MAX + 1), SUBJECTS_MAX, 0]:
        limited.warning(log, str(subject), subject)
    assert lines(caplog) == [*map(str, range(SUBJECTS_MAX + 1)), "0"]


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
