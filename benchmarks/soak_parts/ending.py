"""The end of a soak, step by step: each awaited state, its progress, and the time it took."""

import sys
import time
from collections.abc import Callable
from http.client import HTTPException

SHOW_S = 5
POLL_S = 0.25
NO_PAGE = (OSError, HTTPException, ValueError)
"""Errors of a request for a page that is late, cut, or gone."""


def shown(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


class Ending:
    """Waits for one thing after the other.

    Attributes:
        took_s: Of each step that is over, in their order.
        findings: The steps that took too long.
    """

    def __init__(
        self,
        show: Callable[[str], None] = shown,
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.took_s: dict[str, float] = {}
        self.findings: list[str] = []
        self._show, self._clock_s, self._sleep = show, clock_s, sleep

    def wait(
        self,
        awaited: str,
        condition: Callable[[], bool],
        deadline_s: float,
        progress: Callable[[], str],
    ) -> None:
        """Wait until the condition is true or its time is over; a missing page counts as false.

        Args:
            awaited: Text of the condition, as a sentence.
            condition: Called every `POLL_S` seconds.
            deadline_s: Longest time to wait.
            progress: Text of the progress; shown every `SHOW_S` seconds.
        """
        began = last = self._clock_s()
        while not (is_true := _holds(condition)) and self._clock_s() - began < deadline_s:
            self._sleep(POLL_S)
            if self._clock_s() - last >= SHOW_S:
                last = self._clock_s()
                self._show(f"  {last - began:3.0f} s until {awaited}: {_said(progress)}")
        self.took_s[awaited] = took_s = self._clock_s() - began
        if is_true:
            self._show(f"  after {took_s:.1f} s {awaited}")
        else:
            self.findings.append(f"not within {deadline_s:g} s: {awaited}: {_said(progress)}")


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except NO_PAGE:
        return False


def _said(progress: Callable[[], str]) -> str:
    try:
        return progress()
    except NO_PAGE as error:
        return f"no page ({error!r})"
