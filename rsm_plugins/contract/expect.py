"""Checks of promises: a broken one raises an AssertionError whose message names the repair.

The messages contain all facts, so that they are the same under pytest and in `tidemark rsm check`,
which runs without it.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO, TypeVar

from rsm_plugins.contract.samples import read
from runtime.raised import described

T = TypeVar("T")
Errors = type[BaseException] | tuple[type[BaseException], ...]

_SHOWN_BYTES = 12


class HungError(AssertionError):
    """A call did not return in time."""


def that(fact: bool, message: str) -> None:
    """Break the promise with `message` when `fact` does not hold."""
    if not fact:
        raise AssertionError(message)


def same_bytes(got: bytes, expected: bytes, what: str) -> None:
    """Expect equal bytes; the message has the first difference."""
    if got == expected:
        return
    pairs = zip(got, expected, strict=False)
    at = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(got), len(expected)))
    raise AssertionError(
        f"{what}: got {len(got)} bytes, expected {len(expected)}; they part at byte {at}:"
        f" {got[at : at + _SHOWN_BYTES]!r} instead of {expected[at : at + _SHOWN_BYTES]!r}"
    )


def reads(call: Callable[[], BinaryIO], expected: bytes, what: str) -> None:
    """Expect that the stream opened by `call` holds exactly `expected`."""
    same_bytes(read(call()), expected, what)


def fails(errors: Errors, call: Callable[[], object], what: str) -> None:
    """Expect one of `errors` from `call`; a stream that it opened instead is closed."""
    wanted = _names(errors)
    try:
        result = call()
    except errors:
        return
    except Exception as e:  # any other error is the finding
        raise AssertionError(f"{what}: raised {described(e)}; promised is {wanted}") from e
    if hasattr(result, "close"):
        result.close()
    raise AssertionError(f"{what}: raised nothing; promised is {wanted}")


def together(
    calls: Sequence[Callable[[], T]], *, deadline_s: float, what: str = "a call"
) -> list[T]:
    """Run all calls at once, each in a thread of its own; returns their results in order.

    The threads are daemons: a plugin that hangs breaks its promise and not the process.

    Raises:
        AssertionError: A call did not return within `deadline_s`. Otherwise the error of the first
            call that raised one.
    """
    answers: dict[int, T] = {}
    errors: dict[int, BaseException] = {}
    start = threading.Barrier(len(calls))

    def run(number: int) -> None:
        try:
            start.wait()
            answers[number] = calls[number]()
        except BaseException as e:  # noqa: BLE001 - raised again in the caller's thread
            errors[number] = e

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    end = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    if errors:
        raise errors[min(errors)]
    hung = [thread for thread in threads if thread.is_alive()]
    if hung:
        where = _waits_in(hung[0])
        raise HungError(f"{what} did not return within {deadline_s:g} s{where}")
    return [answers[n] for n in range(len(calls))]


def _waits_in(thread: threading.Thread) -> str:
    """The plugin call that a thread waits in: the one that a promise made."""
    frame = sys._current_frames().get(thread.ident or 0)
    called = ""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("rsm_plugins.contract"):
            return f": it waits in {called}" if called else ""
        called = frame.f_code.co_name
        frame = frame.f_back
    return ""


def _names(errors: Errors) -> str:
    kinds = errors if isinstance(errors, tuple) else (errors,)
    return " or ".join(kind.__name__ for kind in kinds)
