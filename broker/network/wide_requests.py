"""Limits how many requests with many elements are decoded at a time, of an address and in all.

A request for 100,000 partitions is a megabyte as received, and fifty as objects. So each takes
memory for the largest number of elements it may have before it is decoded. If none is left
(`RequestMemory`: addresses take turns, one address gets half), it waits undecoded. The elements are
counted on the decoding thread only after that. So few requests at a time are queued for that
thread, however many an address sends.
"""

import asyncio
from typing import Any, Final

from broker.network.registry import CloseConnection, OrderedAnswer
from broker.network.request_memory import RequestMemory
from runtime.executors import Pool

ELEMENT_BYTES: Final = 450
"""Memory for one partition of a request: its object, the accounting and its answer."""
WAIT_MS_MAX: Final = 45_000
"""A request that waited longer is refused: few clients still wait for its answer."""


class WideRequests:
    """Serves such requests as memory allows. Belongs to one event loop."""

    def __init__(self, memory: RequestMemory, pool: Pool) -> None:
        """`pool` is the thread that counts elements."""
        self.memory, self._pool = memory, pool

    async def serve(self, address: str, in_order: OrderedAnswer) -> Any:
        """Serve a request as soon as there is memory for it.

        Raises:
            CloseConnection: It has waited for `WAIT_MS_MAX`.
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
            in_order.let_go = _nothing  # breaks a reference cycle

    def end_long_waits(self, now_ms: int) -> None:
        """Refuse the requests that have waited longer than `WAIT_MS_MAX`."""
        for allocation in self.memory.waiting_since(now_ms - WAIT_MS_MAX):
            assert isinstance(allocation, _Allocation)
            allocation.refuse()


class _Allocation:
    """A request's share of the memory: not taken yet, taken, or given back."""

    def __init__(self, memory: RequestMemory, address: str) -> None:
        self.address, self._size_bytes = address, 0
        self._memory, self._is_taken = memory, False
        self._granted: asyncio.Future[None] | None = None

    async def take(self, size_bytes: int) -> None:
        """Wait until there is memory, and take it."""
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
        assert self._granted is not None
        if not self._granted.done():
            self._take()
            self._granted.set_result(None)

    def fail(self, error: Exception) -> None:
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
        """Give back what was taken beyond `size_bytes`."""
        more = self._size_bytes - size_bytes
        if more > 0:
            self._size_bytes = size_bytes
            self._memory.give_back(self.address, more)

    def let_go(self) -> None:
        """Give the memory back; a second call does nothing."""
        if self._is_taken:
            self._is_taken = False
            self._memory.give_back(self.address, self._size_bytes)

    def _take(self) -> None:
        self._is_taken = True
        self._memory.take(self.address, self._size_bytes)


def _nothing() -> None:
    """Replaces `let_go` of a request that has ended."""
