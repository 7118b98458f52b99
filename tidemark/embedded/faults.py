"""Faults on demand, as a test suite adds them: `broker.faults`, and `broker.faults.store`.

A fault lives in the broker process: it goes when it is removed, and with that process, also at a
restart.
"""

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from tidemark.embedded.errors import BrokerError

__tracebackhide__ = True
Control = Callable[..., dict[str, Any]]
"""Sends a command with its arguments as keywords, and returns the answer."""
Starts = Callable[[], int]
"""How often the broker was started so far: each process numbers its faults from 1."""

WAIT_S_MAX: Final = 600.0
_NOT_SHOWN: Final = frozenset({"id", "over", "last_hits", "reached"})


class Fault:
    """One fault that was added.

    A context manager: it is removed when the block is left.

    Attributes:
        id: its number in the broker.
    """

    def __init__(self, control: Control, said: dict[str, Any]) -> None:
        self._control, self._said, self._is_removed = control, said, False
        self.id = int(said["id"])

    def __repr__(self) -> str:
        shown = {name: value for name, value in self._said.items() if name not in _NOT_SHOWN}
        facts = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"<fault {self.id}: {facts}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(BrokerError):  # a broker that was killed has forgotten it
            self.remove()

    @property
    def hits(self) -> int:
        """How often it has hit; of a removed one, until it was removed."""
        return int(self._now()["hits"])

    @property
    def last_hits(self) -> list[dict[str, Any]]:
        """The newest hits, at most 100, oldest first.

        Each has at_ms (wall clock), and api, version and client_id, or of the store call and topic.
        """
        found: list[dict[str, Any]] = self._now()["last_hits"]
        return found

    @property
    def is_over(self) -> bool:
        """Whether it hits no more: its count is used up, or it was removed."""
        return self._is_removed or bool(self._now()["over"])

    def wait(self, hits: int = 1, *, timeout_s: float = 30.0) -> Self:
        """Wait until it has hit so often.

        Raises:
            TimeoutError: it has not, in time, or it was removed meanwhile.
            BrokerError: the broker does not run.
        """
        if not 0 <= timeout_s <= WAIT_S_MAX:
            raise ValueError(f"timeout_s={timeout_s}: allowed is 0 to {WAIT_S_MAX:.0f}")
        if not self._is_removed:
            ms = int(timeout_s * 1000)
            self._said = self._control("faults.wait", id=self.id, hits=hits, timeout_ms=ms)
        if self._said["hits"] < hits:
            raise TimeoutError(f"{self!r} was not hit {hits} times within {timeout_s:g} s")
        return self

    def remove(self) -> None:
        """Take it away; a second time is fine.

        Raises:
            BrokerError: the broker does not run, or was restarted since.
        """
        if not self._is_removed:
            self._said = self._control("faults.remove", id=self.id)
            self._is_removed = True

    def _now(self) -> dict[str, Any]:
        if not self._is_removed:
            self._said = self._control("faults.wait", id=self.id)
        return self._said


def _of_this_process(control: Control, starts: Starts) -> Control:
    """Commands to the process that runs now: the next one's faults have the same numbers."""
    started = starts()

    def send(command: str, **arguments: Any) -> dict[str, Any]:
        if starts() != started:
            raise BrokerError(f"{command}: the broker was started again since: its faults are gone")
        return control(command, **arguments)

    return send


class StoreFaults:
    """Faults of the remote store.

    Attributes:
        is_used: whether any was added here.
    """

    def __init__(self, control: Control, starts: Starts) -> None:
        self._control, self._starts = control, starts
        self.is_used = False

    def add(
        self,
        kind: str,
        *,
        call: str | None = None,
        topic: str | None = None,
        delay_ms: int | None = None,
        count: int | None = None,
        probability: float | None = None,
        seed: int | None = None,
    ) -> Fault:
        """Have calls of the storage plugin fail, from now on.

        Args:
            kind: "slow" (a call begins `delay_ms` later), "refuse" (it fails with an error that may
                pass), "hang" (it begins when the fault is removed) or "lose_put_answer" (a segment
                is copied, and its copy fails, `delay_ms` later).
            call: "copy", "read", "index" or "delete"; None: any.
            topic: whose segments are meant; None: any.
            delay_ms: see `kind`.
            count: hits until it is over; None: until it is removed.
            probability: of a hit.
            seed: of the rng, where `probability` is below 1.

        Raises:
            BrokerError: the broker does not run, or the message says what cannot be.
        """
        given = _given(locals())
        self.is_used = True
        control = _of_this_process(self._control, self._starts)
        return Fault(control, control("faults.add_store", **given))


class Faults:
    """Faults of requests.

    Attributes:
        store: those of the remote store.
    """

    def __init__(self, control: Control, starts: Starts) -> None:
        self._control, self._starts, self._is_used = control, starts, False
        self.store = StoreFaults(control, starts)

    def add(
        self,
        *,
        api: str | int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        error: str | int | None = None,
        delay_ms: int | None = None,
        cut: str | None = None,
        count: int | None = None,
        probability: float | None = None,
        seed: int | None = None,
    ) -> Fault:
        """Have requests fail, wait or lose their connection, from now on.

        Args:
            api: Kafka's name of the API, such as "Produce" or "OffsetCommit"; None: any.
            topic: only requests that name it are hit. An error is answered for this topic alone,
                and the rest of the request is served.
            partition: of the topic, likewise.
            client_id: only requests of such a client are hit.
            error: name or number of the error that is answered; what it stands for is not served.
            delay_ms: a request waits so long before anything else.
            cut: "before_serving" or "after_serving": the connection ends without an answer.
            count: hits until it is over; None: until it is removed.
            probability: of a hit.
            seed: of the rng, where `probability` is below 1.

        Raises:
            BrokerError: the broker does not run, or the message says what cannot be.
        """
        given = _given(locals())
        self._is_used = True
        control = _of_this_process(self._control, self._starts)
        return Fault(control, control("faults.add", **given))

    def in_force(self) -> "list[Fault]":
        """Those that hit still, if any was added here; else the broker is not asked."""
        if not (self._is_used or self.store.is_used):
            return []
        return [one for one in self.list() if not one.is_over]

    def list(self) -> "list[Fault]":
        """All faults, those of the store included, as they are now."""
        control = _of_this_process(self._control, self._starts)
        return [Fault(control, said) for said in control("faults.list")["faults"]]

    def clear(self) -> None:
        """Remove all, those of the store included."""
        self._control("faults.clear")
        self._is_used = self.store.is_used = False

    def clear_used(self) -> None:
        """Remove all if any was added here since the last time; else the broker is not asked."""
        if self._is_used or self.store.is_used:
            self.clear()


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a caller gave to a method."""
    return {
        name: value for name, value in arguments.items() if name != "self" and value is not None
    }
