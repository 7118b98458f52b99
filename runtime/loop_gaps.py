"""Finds callbacks that hold an event loop, always on and without a cost per callback.

An iteration is the work of the loop between two waits for its descriptors; a client that sends
meanwhile waits for its end. A thread checks some 30 times a second which iteration runs and since
when: both are in the frame of asyncio's `_run_once`. An iteration that does not end is checked more
often, and its frames name the callback. Debug mode would log the same, at two clock readings per
callback.

The time in which the loop's thread waited for a CPU, and the time that the hypervisor kept, are
separated and not counted: a busy machine is no fault of the callback.
"""

import asyncio
import logging
import sys
import threading
import time
from asyncio import base_events, events
from collections import Counter
from types import CodeType, FrameType
from typing import Final, NamedTuple

from runtime.collector import resting_collector
from runtime.executors import spawn_thread
from runtime.metrics import Registry
from runtime.thread_accounts import Accounts, Gap, KernelAccounts, LockAccounts, account_for

log = logging.getLogger(__name__)

GAP_MS: Final = 50
"""Lower bound of a gap."""
WARN_MS: Final = 100
STILL_HELD_MS: Final = 5_000
"""An iteration that has not ended by then has a line of its own, and again at double the time."""
POLL_MS: Final = 30
SUSPECT_MS: Final = 15
"""Iterations older than this are checked each `POLL_CLOSELY_MS`."""
POLL_CLOSELY_MS: Final = 5
READ_EACH_S: Final = 1
QUIET_MS: Final = 10_000
"""Between two lines that name the same callback."""
FRAMES_SHOWN: Final = 4
BUCKETS_MS: Final = (75, 100, 150, 200, 300, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
WAITING_MODULES: Final = frozenset({"threading", "queue", "selectors", "concurrent.futures.thread"})
"""A thread whose innermost frame is here waits for work."""

_RUN_ONCE: Final[CodeType] = base_events.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]
_RUN_HANDLE: Final[CodeType] = events.Handle._run.__code__


class Sight(NamedTuple):
    """The work of a loop at one moment.

    Attributes:
        began_s: Beginning of its iteration, on the loop's clock.
        callback: Qualified name of the callback or coroutine, with its module.
        place: The innermost frames, innermost first.
    """

    began_s: float
    callback: str
    place: str


def sight_of(frame: FrameType | None) -> Sight | None:
    """The work of a loop, from its thread's innermost frame; None while it waits."""
    frames: list[FrameType] = []
    callback = "asyncio"
    while frame is not None and frame.f_code is not _RUN_ONCE:
        if frame.f_code is _RUN_HANDLE:
            callback = _name(frames[-1]) if frames else _handle_name(frame)
        else:
            frames.append(frame)
        frame = frame.f_back
    # Set once the wait is over, from the clock of `loop.time`.
    began_s = None if frame is None else frame.f_locals.get("end_time")
    if began_s is None:
        return None
    place = " < ".join(f"{_name(one)}:{one.f_lineno}" for one in frames[:FRAMES_SHOWN])
    return Sight(began_s, callback, place or callback)


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


def _handle_name(frame: FrameType) -> str:
    """The callback where a function of C runs, or where it has just returned."""
    callback = getattr(frame.f_locals.get("self"), "_callback", None)
    owner = getattr(callback, "__self__", None)
    called = owner.get_coro() if isinstance(owner, asyncio.Task) else callback
    name = getattr(called, "__qualname__", None) or type(called).__qualname__
    return f"{getattr(called, '__module__', None) or 'asyncio'}.{name}"


def busy_threads(frames: dict[int, FrameType], watched: int) -> str:
    """The frames of all threads that do not wait for work, except the watched one."""
    busy = [
        f"{_name(frame)}:{frame.f_lineno}"
        for thread_id, frame in frames.items()
        if thread_id != watched and frame.f_globals.get("__name__") not in WAITING_MODULES
    ]
    return ", ".join(busy[:FRAMES_SHOWN]) or "unknown"


class _Iteration:
    """An iteration that is older than it should be."""

    __slots__ = ("after", "before", "began_s", "held_ms", "next_line_ms", "places")

    def __init__(self, began_s: float, before: Accounts) -> None:
        self.began_s, self.before, self.after = began_s, before, before
        self.held_ms: float = 0
        self.places: Counter[tuple[str, str]] = Counter()
        self.next_line_ms: float = STILL_HELD_MS

    def seen(self, sight: Sight, now_s: float, accounts: Accounts) -> None:
        self.held_ms, self.after = (now_s - self.began_s) * 1_000, accounts
        self.places[sight.callback, sight.place] += 1

    @property
    def most_seen(self) -> tuple[str, str]:
        """Callback and place that its time went to."""
        callbacks: Counter[str] = Counter()
        for (callback, _), count in self.places.items():
            callbacks[callback] += count
        callback = callbacks.most_common(1)[0][0]
        places = {place: n for (of, place), n in self.places.items() if of == callback}
        return callback, max(places, key=lambda place: places[place])


class _Quiet:
    """Gaps of a callback that are not logged: since when, how many, and the longest."""

    __slots__ = ("longest_ms", "more", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s, self.more, self.longest_ms = since_s, 0, 0.0


class GapReport:
    """Counts gaps and logs the long ones.

    Attributes:
        longest_ms: the longest gap so far, without time that the machine kept.
    """

    def __init__(self, metrics: Registry, prefix: str) -> None:
        self._gaps = metrics.histogram(
            f"{prefix}event_loop_gap_ms",
            f"Milliseconds that the event loop was held at once, those above {GAP_MS}",
            buckets=BUCKETS_MS,
        )
        self._longest = metrics.gauge(
            f"{prefix}event_loop_longest_gap_ms",
            "Longest time that the event loop was held at once since the start",
        )
        self._longest.set(0)
        self.longest_ms: float = 0
        self._quiet: dict[str, _Quiet] = {}

    def add(self, gap: Gap, callback: str, place: str, now_s: float) -> None:
        """Count a gap of the loop; a long one has a line that names the callback."""
        if gap.own_ms >= GAP_MS:
            self._gaps.observe(gap.own_ms)
            self.longest_ms = max(self.longest_ms, gap.own_ms)
            self._longest.set(round(self.longest_ms, 1))
        if gap.held_ms < WARN_MS:
            return
        quiet = self._quiet.get(callback)
        if quiet is not None and (now_s - quiet.since_s) * 1_000 < QUIET_MS:
            quiet.more += 1
            quiet.longest_ms = max(quiet.longest_ms, gap.held_ms)
            return
        self._quiet[callback] = _Quiet(now_s)
        is_ours = gap.own_ms >= WARN_MS
        log.log(
            logging.WARNING if is_ours else logging.INFO,
            "%s: held_ms=%d callback=%s at=%s cpu_ms=%d blocked_ms=%d lock_ms=%d runnable_ms=%d "
            "stolen_ms=%d full_collections=%d not_shown=%d not_shown_longest_ms=%d",
            "the event loop was held" if is_ours else "a busy machine held the event loop",
            gap.held_ms,
            callback,
            place,
            gap.cpu_ms,
            gap.blocked_ms,
            gap.lock_ms,
            gap.runnable_ms,
            gap.stolen_ms,
            gap.full_collections,
            0 if quiet is None else quiet.more,
            0 if quiet is None else quiet.longest_ms,
        )


class LoopWatch:
    """Watches the event loop of one thread from another.

    Attributes:
        report: The gaps that were found.
    """

    def __init__(self, metrics: Registry, prefix: str) -> None:
        """Watch the loop that runs, or will run, on the calling thread.

        Args:
            metrics: Counts gaps.
            prefix: Of the metrics' names; the tier has one of its own, since both are on one page.
        """
        self.report = GapReport(metrics, prefix)
        self._thread_id = threading.get_ident()
        self._accounts = KernelAccounts()
        self._stopped = False
        self._iteration: _Iteration | None = None
        self._lock_ms: float = 0
        self._last_read = self._read(with_stolen=False)
        self._last_read_s = time.monotonic()
        self._thread = spawn_thread("loop-gaps", self._run)

    def stop(self) -> None:
        """Watch no longer; a second call does nothing."""
        self._stopped = True
        self._thread.join()

    def _run(self) -> None:
        lock, now_s = LockAccounts(), time.monotonic()
        while not self._stopped:
            wait_s = (POLL_MS if self._iteration is None else POLL_CLOSELY_MS) / 1_000
            due_s = time.monotonic() + wait_s
            time.sleep(wait_s)
            now_s = time.monotonic()
            lacked_ms = lock.lacked_ms((now_s - due_s) * 1_000)
            self._lock_ms += lacked_ms
            self._poll(now_s, lacked_ms)
        if self._iteration is not None:
            self._ended(self._iteration, now_s)
        self._accounts.close()
        lock.close()

    def _read(self, *, with_stolen: bool) -> Accounts:
        return self._accounts.read(with_stolen=with_stolen)._replace(lock_ms=self._lock_ms)

    def _poll(self, now_s: float, lacked_ms: float) -> None:
        """Check the loop's work; `lacked_ms` is how long this thread lacked the lock before."""
        # A pass of the collector calls Python, and so may let the loop continue while the
        # interpreter still holds a pointer to a frame of it.
        with resting_collector():
            frames = sys._current_frames()
            del frames[threading.get_ident()]  # this frame: kept, it would be a cycle at each look
            sight = sight_of(frames.get(self._thread_id))
        iteration = self._iteration
        if iteration is not None and (sight is None or sight.began_s != iteration.began_s):
            self._iteration = None
            self._ended(iteration, now_s)
        if sight is not None and (now_s - sight.began_s) * 1_000 >= SUSPECT_MS:
            self._poll_closely(sight, now_s)
            return
        if iteration is None and lacked_ms >= GAP_MS:
            gap = Gap(lacked_ms, 0, 0, 0, lacked_ms, 0, 0)
            self.report.add(gap, "another thread", busy_threads(frames, self._thread_id), now_s)
        # A loop that does nothing runs up no accounts.
        if sight is not None or now_s - self._last_read_s > READ_EACH_S:
            self._last_read, self._last_read_s = self._read(with_stolen=False), now_s

    def _poll_closely(self, sight: Sight, now_s: float) -> None:
        accounts = self._read(with_stolen=True)
        iteration = self._iteration
        if iteration is None:
            before = accounts
            if (now_s - sight.began_s) * 1_000 > POLL_MS + SUSPECT_MS:
                # This thread is late itself, as on a busy machine: the loop's thread has waited for
                # a CPU since the check before, which is part of it.
                before = self._last_read._replace(stolen_ms=accounts.stolen_ms)
            iteration = self._iteration = _Iteration(sight.began_s, before)
        iteration.seen(sight, now_s, accounts)
        if iteration.held_ms >= iteration.next_line_ms:
            iteration.next_line_ms *= 2
            log.warning(
                "the event loop is still held: held_ms=%d callback=%s at=%s",
                iteration.held_ms,
                sight.callback,
                sight.place,
            )

    def _ended(self, iteration: _Iteration, now_s: float) -> None:
        if iteration.held_ms >= GAP_MS:
            gap = account_for(iteration.held_ms, iteration.before, iteration.after)
            self.report.add(gap, *iteration.most_seen, now_s)
