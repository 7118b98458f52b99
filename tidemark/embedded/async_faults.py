"""The same faults for suites that run in an event loop: `faults` of `tidemark.AsyncBroker`."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from tidemark.embedded.faults import Fault, Faults

P = ParamSpec("P")
T = TypeVar("T")


async def beside(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a call in a thread; who cancels it gets the end of it first."""
    running = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # taken: the cancellation is what counts
        raise


_SLICE_S: Final = 0.25
"""A thread cannot be ended: who cancels a wait gets the end of its slice."""


class AsyncFault:
    """A `Fault` with methods that are awaited; its facts are methods, too.

    Attributes:
        id: its number in the broker.
    """

    def __init__(self, fault: Fault) -> None:
        self._fault, self.id = fault, fault.id

    def __repr__(self) -> str:
        return repr(self._fault)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await beside(self._fault.__exit__, kind, error, trace)

    async def hits(self) -> int:
        """How often it has hit; of a removed one, until it was removed."""
        return await beside(lambda: self._fault.hits)

    async def last_hits(self) -> list[dict[str, Any]]:
        """The newest hits, at most 100, oldest first."""
        return await beside(lambda: self._fault.last_hits)

    async def is_over(self) -> bool:
        """Whether it hits no more: its count is used up, or it was removed."""
        return await beside(lambda: self._fault.is_over)

    async def wait(self, hits: int = 1, *, timeout_s: float = 30.0) -> Self:
        """Where it is cancelled, it ends soon."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        while True:
            left_s = max(ends_at - loop.time(), 0.0)
            try:
                await beside(self._fault.wait, hits, timeout_s=min(left_s, _SLICE_S))
            except TimeoutError:
                if left_s <= _SLICE_S:
                    text = f"{self!r} was not hit {hits} times within {timeout_s:g} s"
                    raise TimeoutError(text) from None
            else:
                return self

    async def remove(self) -> None:
        """Take it away; a second time is fine."""
        await beside(self._fault.remove)


class AsyncStoreFaults:
    """`StoreFaults` with methods that are awaited."""

    def __init__(self, faults: Faults) -> None:
        self._store = faults.store

    async def add(self, kind: str, **fault: Any) -> AsyncFault:
        """Have calls of the storage plugin fail, from now on."""
        return AsyncFault(await beside(self._store.add, kind, **fault))


class AsyncFaults:
    """`Faults` with methods that are awaited.

    Attributes:
        store: faults of the remote store.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.store = AsyncStoreFaults(faults)

    async def add(self, **fault: Any) -> AsyncFault:
        """Have requests fail, wait or lose their connection, from now on."""
        return AsyncFault(await beside(self._faults.add, **fault))

    async def list(self) -> "list[AsyncFault]":
        """All faults, those of the store included, as they are now."""
        return [AsyncFault(fault) for fault in await beside(self._faults.list)]

    async def clear(self) -> None:
        """Remove all, those of the store included."""
        await beside(self._faults.clear)
