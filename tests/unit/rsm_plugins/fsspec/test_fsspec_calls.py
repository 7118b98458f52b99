import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from rsm_plugins.fsspec.calls import BoundedCalls


class Fs:
    """A synchronous file system with one method that hangs until it is let go."""

    async_impl = False

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.threads: set[str] = set()

    def hang(self) -> str:
        self.gate.wait(30)
        return "late"

    def echo(self, value: object, *, again: object = None) -> object:
        self.threads.add(str(threading.get_ident()))
        return (value, again)

    def fail(self, error: BaseException) -> None:
        raise error


@pytest.fixture
def fs() -> Iterator[Fs]:
    fs = Fs()
    yield fs
    fs.gate.set()


def test_results_and_errors_come_back(fs: Fs) -> None:
    calls = BoundedCalls(fs, 10)
    assert calls.method("echo", 1, again=2) == (1, 2)
    for error in (OSError("x"), TimeoutError("its own"), FileNotFoundError("y")):
        with pytest.raises(type(error), match=str(error)):
            calls.method("fail", error)
    calls.close()


def test_one_caller_needs_one_thread(fs: Fs) -> None:
    calls = BoundedCalls(fs, 10)
    for number in range(50):
        calls.method("echo", number)
    assert len(fs.threads) == 1
    calls.close()


def test_a_call_that_hangs_ends_for_its_caller_and_hinders_no_other(fs: Fs) -> None:
    calls = BoundedCalls(fs, 0.05)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        calls.method("hang")
    assert calls.method("echo", 1) == (1, None)
    calls.close()


def test_calls_together_end_within_their_time(fs: Fs) -> None:
    calls = BoundedCalls(fs, 30)
    with calls.together_within(0.05), pytest.raises(TimeoutError, match="no answer within"):
        calls.method("hang")
    with calls.together_within(-1), pytest.raises(TimeoutError, match="its time is over"):
        calls.method("echo", 1)
    assert not fs.threads
    assert calls.method("echo", 1) == (1, None)
    calls.close()


def test_when_many_hang_no_more_are_begun_until_they_return(fs: Fs) -> None:
    calls = BoundedCalls(fs, 0.001)
    for _ in range(32):
        with pytest.raises(TimeoutError, match="no answer"):
            calls.method("hang")
    with pytest.raises(TimeoutError, match="32 earlier calls hang"):
        calls.method("hang")
    fs.gate.set()
    for thread in threading.enumerate():
        if thread.name == "fsspec-call":
            thread.join(10)
    assert BoundedCalls(fs, 10).method("hang") == "late"
    begun = threading.Event()
    with suppress(TimeoutError):  # a millisecond is short
        calls.call(begun.set)
    assert begun.wait(10)
    calls.close()
