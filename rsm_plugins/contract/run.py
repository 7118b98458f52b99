"""Checks a plugin's promises, one after the other, on a live store, and leaves nothing there.

Each promise has a plugin and a thread of its own. A promise that hangs counts as broken, and the
next one is checked. Another plugin cleans up, so that a closed or hanging one does not prevent it.
"""

import inspect
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from unittest import SkipTest

from rsm_plugins.api import (
    ObjectLister,
    RemoteStorageError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from rsm_plugins.contract import AllPromises, expect, samples
from rsm_plugins.contract.flaky import FlakyStore
from runtime.raised import described

PROMISE_DEADLINE_S = 40.0
_CLEAN_UP_S = 15.0
"""Together less than a minute: after that time at most there is a verdict, and the next promise
begins."""
_INTERRUPTED_S = 2.0
Make = Callable[[], RemoteStorageManager]


class Verdict(Enum):
    """Outcome of a promise."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One promise with its outcome.

    Attributes:
        name: The test's name in `RemoteStorageManagerContract`.
        sentence: The promise for people.
        reason: Why it is broken, or was not checked; empty if it is kept.
        hung: True if it is broken because a call did not return.
    """

    name: str
    sentence: str
    verdict: Verdict
    reason: str
    took_ms: int
    hung: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plugin to be checked.

    Attributes:
        make: Makes a configured plugin.
        make_unreachable: Makes one whose store does not answer; None: that promise is not checked.
        make_refusing: Makes one whose store accepts no writes; None: that promise is not checked.
        make_flaky: Makes one whose requests fail on demand, with the object that decides it; None:
            promises about repeated requests are not checked.
        settings: Settings of the plugin that `make` returns.
        large_segment_bytes: Size of the large segments.
    """

    make: Make
    make_unreachable: Make | None = None
    make_refusing: Make | None = None
    make_flaky: Callable[[], FlakyStore] | None = None
    settings: Mapping[str, str] | None = None
    large_segment_bytes: int = AllPromises.large_segment_bytes

    def new_promises(self) -> AllPromises:
        """The promises, with a new scratch topic."""
        promises = AllPromises()
        promises.settings = self.settings or {}
        promises.large_segment_bytes = self.large_segment_bytes
        promises.deadline_s = PROMISE_DEADLINE_S
        return promises


def probe(promises: AllPromises, manager: RemoteStorageManager) -> str:
    """Copy, read, list and delete one small segment; returns the error, "" for success.

    It finds errors that would break nearly every promise: a wrong token, an unknown host, a store
    that is down. The bytes are not checked: promises do that. The plugin may still be in a call
    afterwards.
    """
    doing = "copied"

    def run() -> None:
        nonlocal doing
        metadata = promises.copied(manager)
        doing = "read"
        samples.read(manager.fetch_log_segment(metadata, 1, 2))  # a store may ignore ranges
        doing = "listed"
        if isinstance(manager, ObjectLister):
            next(iter(manager.list_objects()), None)
        doing = "deleted"
        manager.delete_log_segment_data(metadata)

    try:
        expect.together([run], deadline_s=PROMISE_DEADLINE_S, what="the call")
    except Exception as e:  # noqa: BLE001 - any error is the finding
        why = str(e) if isinstance(e, expect.HungError) else described(e)
        promises.stopped = True
        left = "; something of it may be left" if clean_up(promises, manager) else ""
        return f"a small segment cannot be {doing}: {why}{left}"
    return ""


def promise_names() -> list[str]:
    """Names of all promises, in the order of their definition."""
    groups = AllPromises.__bases__
    return [name for group in groups for name in vars(group) if name.startswith("test_")]


def sentence_of(name: str) -> str:
    """The sentence of a promise, by its name."""
    return " ".join((inspect.getdoc(getattr(AllPromises, name)) or name).split())


def ask_all(
    candidate: Candidate, janitor: RemoteStorageManager, left: list[str]
) -> Iterator[Outcome]:
    """Check every promise; an interruption (Ctrl-C) first cleans up.

    Args:
        candidate: The plugin to be checked.
        janitor: A plugin on the same store, which cleans up.
        left: Gets what could not be deleted.
    """
    for name in promise_names():
        yield ask(candidate, name, janitor, left)


def ask(candidate: Candidate, name: str, janitor: RemoteStorageManager, left: list[str]) -> Outcome:
    """Check one promise by its name; arguments as of `ask_all`."""
    promises = candidate.new_promises()
    method = getattr(promises, name)
    ended = threading.Event()

    def run() -> None:
        try:
            _with_plugin(method, candidate)
        finally:
            ended.set()

    began = time.monotonic()
    verdict, reason, hung = Verdict.KEPT, "", False
    try:
        expect.together([run], deadline_s=promises.deadline_s, what="the promise")
    except SkipTest as e:
        verdict, reason = Verdict.NOT_ASKED, str(e)
    except AssertionError as e:
        verdict, reason = Verdict.BROKEN, str(e) or "an assertion failed"
        hung = isinstance(e, expect.HungError)
    except Exception as e:  # noqa: BLE001 - any error breaks the promise
        verdict, reason = Verdict.BROKEN, f"raised {described(e)}"
    finally:
        promises.stopped = True
        ended.wait(_INTERRUPTED_S)
        left += clean_up(promises, janitor)
    sentence = sentence_of(name)
    took_ms = round((time.monotonic() - began) * 1_000)
    return Outcome(name, sentence, verdict, reason, took_ms, hung)


def clean_up(promises: AllPromises, janitor: RemoteStorageManager) -> list[str]:
    """Delete what was made for these promises; returns what is left, with the error."""
    try:
        [left] = expect.together(
            [lambda: promises.clean_up(janitor)], deadline_s=_CLEAN_UP_S, what="cleaning up"
        )
    except AssertionError as e:
        return [str(e)]
    return left


def _with_plugin(method: Callable[..., None], candidate: Candidate) -> None:
    [kind] = inspect.signature(method).parameters
    asked: object = None
    if kind == "manager":
        manager = candidate.make()
    elif kind == "flaky_store":
        if candidate.make_flaky is None:
            raise SkipTest("no flaky store was given: the test class of the plugin has one")
        asked = candidate.make_flaky()
        manager = asked.manager
    elif kind == "refusing_manager":
        if candidate.make_refusing is None:
            raise SkipTest("no settings of a store that refuses to write were given")
        try:
            manager = candidate.make_refusing()
        except RemoteStorageError:
            return  # noticed in `configure`
    elif candidate.make_unreachable is None:
        raise SkipTest("no settings of an unreachable store were given")
    else:
        try:
            manager = candidate.make_unreachable()
        except RetriableRemoteStorageError:
            return  # noticed in `configure`, with the right error
    try:
        method(asked or manager)
    finally:
        manager.close()
