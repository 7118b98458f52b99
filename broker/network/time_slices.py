"""Fair order of service: addresses take turns, and the connections of an address take turns.

A readable connection is served at once, until its address has used its time slice of this iteration
of the event loop. After that the connections of the address wait in its queue. The queues are
served for some milliseconds, then the loop polls again for other readable connections. So a client
waits only briefly, however many connections others keep busy.

DIFFERS: Kafka has the requests of all connections in one queue, one of each connection.
"""

from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from runtime.clock import Clock

SLICE_NS: Final = 1_000_000
"""Time slice; a request may cost a hundred times another."""
QUEUES_NS: Final = 4 * SLICE_NS
"""Time for the queues before the loop polls again."""


class Member(Protocol):
    """A connection that can wait in the queue of its address."""

    @property
    def account(self) -> "Account":
        """The account of its address."""
        ...

    def run_slice(self, now_ns: int) -> None:
        """Serve ready requests for `SLICE_NS` or one request more; join again if some are left."""
        ...

    def fail(self, error: Exception) -> None:
        """Called if `run_slice` raised `error`."""
        ...


class Account:
    """Event loop time used by the connections of one address.

    Attributes:
        queue: Connections that wait for their time slice, in order.
        used_ns: Time used since the last reset.
        is_over: The time slice is used up; connections wait at least until the next iteration.
    """

    __slots__ = ("__weakref__", "is_over", "queue", "used_ns")

    def __init__(self) -> None:
        self.queue: dict[Member, None] = {}
        self.used_ns = 0
        self.is_over = False


class TimeSlices:
    """The queues of all addresses; belongs to one event loop."""

    def __init__(self, clock: Clock, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """`call_soon` runs a function in the next iteration of the loop."""
        self._clock, self._call_soon = clock, call_soon
        self._accounts: WeakValueDictionary[str, Account] = WeakValueDictionary()
        self._waiting: dict[Account, None] = {}
        self._resting: list[Account] = []
        self._call_is_due = False

    def account(self, address: str) -> Account:
        """The account of an address; it exists as long as a connection refers to it."""
        found = self._accounts.get(address)
        if found is None:
            found = self._accounts[address] = Account()
        return found

    def join(self, one: Member) -> None:
        """Enter the queue at its end; a connection that is queued keeps its place."""
        account = one.account
        account.queue.setdefault(one)
        account.is_over = True
        self._waiting.setdefault(account)
        self._call()

    def leave(self, one: Member) -> None:
        """Leave the queue."""
        one.account.queue.pop(one, None)

    def end(self, account: Account) -> None:
        """The address has used up its time slice."""
        account.is_over = True
        self._resting.append(account)
        self._call()

    def _call(self) -> None:
        if not self._call_is_due:
            self._call_is_due = True
            self._call_soon(self._take)

    def _take(self) -> None:
        try:
            self._serve_queues()
        finally:
            self._call_is_due = False
            if self._waiting:
                self._call()

    def _serve_queues(self) -> None:
        now_ns = self._clock.monotonic_ns()
        end_ns = now_ns + QUEUES_NS
        for account in self._resting:
            account.used_ns, account.is_over = 0, bool(account.queue)
        self._resting.clear()
        while self._waiting and now_ns < end_ns:
            account = next(iter(self._waiting))
            del self._waiting[account]  # to the end: other addresses come first
            now_ns = self._run_slice(account, now_ns)

    def _run_slice(self, account: Account, begun_ns: int) -> int:
        """Serve connections of an address; returns the monotonic time at the end."""
        now_ns = begun_ns
        while account.queue and now_ns < begun_ns + SLICE_NS:
            one = next(iter(account.queue))
            del account.queue[one]
            try:
                one.run_slice(now_ns)
            except Exception as error:  # noqa: BLE001 - closes one connection; the others continue
                one.fail(error)
            now_ns = self._clock.monotonic_ns()
        account.is_over = bool(account.queue)
        if account.queue:
            self._waiting[account] = None
        return now_ns
