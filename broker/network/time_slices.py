"""Which connection is served next: addresses have their time slices, and connections of an address.

A connection is served as soon as it is readable, until its address has had its time slice in this
iteration of the event loop. The others of that address wait in the queue then. The queues are
served for some milliseconds before the loop looks again for who else has something to ask: a client
waits for little, however many connections others keep busy.

DIFFERS: Kafka has the requests of all connections in one queue, one of each connection.
"""

from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from runtime.clock import Clock

SLICE_NS: Final = 1_000_000
"""After so long others are served: a request may cost a hundred times another."""
QUEUES_NS: Final = 4 * SLICE_NS
"""After so long of the queues the loop looks for newcomers."""


class Member(Protocol):
    """A connection that waits in the queue."""

    @property
    def account(self) -> "Account":
        """Of its address."""
        ...

    def run_slice(self, now_ns: int) -> None:
        """Serve what is ready, for `SLICE_NS` or one request more; join again if more is."""
        ...

    def fail(self, error: Exception) -> None:
        """End: `run_slice` raised this."""
        ...


class Account:
    """What the connections of an address have used of the loop's time.

    Attributes:
        queue: those that wait for their time slice, the first comer first.
        used_ns: since it was last new.
        is_over: it has had its time slice: its connections wait, until the next iteration of the
            loop at least.
    """

    __slots__ = ("__weakref__", "is_over", "queue", "used_ns")

    def __init__(self) -> None:
        self.queue: dict[Member, None] = {}
        self.used_ns = 0
        self.is_over = False


class TimeSlices:
    """The queues of all addresses; belongs to one event loop."""

    def __init__(self, clock: Clock, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """`call_soon` has a function called in the next iteration of the loop."""
        self._clock, self._call_soon = clock, call_soon
        self._accounts: WeakValueDictionary[str, Account] = WeakValueDictionary()
        self._waiting: dict[Account, None] = {}
        self._resting: list[Account] = []
        self._call_is_due = False

    def account(self, address: str) -> Account:
        """The account of an address; it is kept as long as one of its connections keeps it."""
        found = self._accounts.get(address)
        if found is None:
            found = self._accounts[address] = Account()
        return found

    def join(self, one: Member) -> None:
        """Wait in the queue, at its end; those who do already stay where they are."""
        account = one.account
        account.queue.setdefault(one)
        account.is_over = True
        self._waiting.setdefault(account)
        self._call()

    def leave(self, one: Member) -> None:
        """Wait no longer."""
        one.account.queue.pop(one, None)

    def end(self, account: Account) -> None:
        """The address has had its time slice."""
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
            del self._waiting[account]  # the other addresses are before it now
            now_ns = self._run_slice(account, now_ns)

    def _run_slice(self, account: Account, begun_ns: int) -> int:
        """Serve connections of an address; returns the time when it was over."""
        now_ns = begun_ns
        while account.queue and now_ns < begun_ns + SLICE_NS:
            one = next(iter(account.queue))
            del account.queue[one]
            try:
                one.run_slice(now_ns)
            except Exception as error:  # noqa: BLE001 - it ends; the others continue
                one.fail(error)
            now_ns = self._clock.monotonic_ns()
        account.is_over = bool(account.queue)
        if account.queue:
            self._waiting[account] = None
        return now_ns
