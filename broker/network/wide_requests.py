"""Requests that decode to much: few are decoded at a time, of an address and in all.

A request for 100,000 partitions is a megabyte as it is received, and fifty as objects. So each
counts with what it may decode to before that is done, and where nothing is left of the memory for
it (`RequestMemory`: addresses in turn, half for one of them) it waits as bytes.

Nothing of a request is done by the thread that decodes before it is the next: neither is it
counted there. So what waits for that thread is of few requests, whatever number an address sends.
"""

import asyncio
from typing import Any, Final

from broker.network.registry import CloseConnection, OrderedAnswer
from broker.network.request_memory import RequestMemory
from runtime.executors import Pool

ELEMENT_BYTES: Final = 450
"""A partition of a request as an object, what is noted of it, and its answer."""
WAIT_MS_MAX: Final = 45_000
"""A request that has waited for so long is not served any more: few clients still wait for it."""


class WideRequests:
    """Has requests begin one after the other; belongs to one event loop."""

    def __init__(self, memory: RequestMemory, pool: Pool) -> None:
        """`pool` counts what requests decode to."""
        self.memory, self._pool = memory, pool

    async def serve(self, address: str, in_order: OrderedAnswer) -> Any:
        """Serve a request when it is the next.

        Raises:
            CloseConnection: it has waited for too long.
        """
        allocation = _Allocation(self.memory, address)
        in_order.let_go = allocation.let_go
        try:
            if in_order.elements:
                await allocation.take(in_order.elements * ELEMENT_BYTES)
                if in_order.count is not None:
                    allocation.keep(await self._pool.run(in_order.count) * ELEMENT_BYTES)
            return await in_order.serve(in_order)
        finally:
            allocation.let_go()
            in_order.let_go = _nothing  # else they keep each other

    def end_long_waits(self, now_ms: int) -> None:
        """Refuse those that have waited for too long."""
        for allocation in self.memory.waiting_since(now_ms - WAIT_MS_MAX):
            assert isinstance(allocation, _Allocation)
            allocation.refuse()


class _Allocation:
    """A request's part of the memory: not taken yet, taken, or given back."""

    def __init__(self, memory: RequestMemory, address: str) -> None:
        self.address, self._size_bytes = address, 0
        self._memory, self._is_taken = memory, False
        self._granted: asyncio.Future[None] | None = None

    async def take(self, size_bytes: int) -> None:
        """Wait until it is there."""
        self._size_bytes = size_bytes
        if self._memory.ask(self):
            self._take()
            return
        self._granted = asyncio.get_running_loop().create_future()
        try:
            await self._granted
        finally:
            self._memory.leave(self)

    def memory_is_there(self) -> None:
        """See `Waiter`."""
        assert self._granted is not None
        if not self._granted.done():
            self._take()
            self._granted.set_result(None)

    def fail(self, error: Exception) -> None:
        """See `Waiter`."""
        assert self._granted is not None
        if not self._granted.done():
            self._granted.set_exception(error)

    def refuse(self) -> None:
        self.fail(
            CloseConnection(
                f"others' requests for very much were before its own for {WAIT_MS_MAX} ms"
            )
        )

    def keep(self, size_bytes: int) -> None:
        """Give back what is taken beyond that."""
        more = self._size_bytes - size_bytes
        if more > 0:
            self._size_bytes = size_bytes
            self._memory.give_back(self.address, more)

    def let_go(self) -> None:
        """Give it back, once."""
        if self._is_taken:
            self._is_taken = False
            self._memory.give_back(self.address, self._size_bytes)

    def _take(self) -> None:
        self._is_taken = True
        self._memory.take(self.address, self._size_bytes)


def _nothing() -> None:
    """Nothing is held any more."""
