"""Which connection is served next: addresses have their turns, and connections of an address.

A connection is served as soon as it is readable, until its address has had its turn in this turn of
the event loop. The others of that address stand in line then. The lines are served for some
milliseconds before the loop looks again for who else has something to ask: a client waits for
little, however many connections others keep busy.

DIFFERS: Kafka has the requests of all connections in one queue, one of each connection.
"""

from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from runtime.clock import Clock

TURN_NS: Final = 1_000_000
"""After so long others are served: a request may cost a hundred times another."""
LINES_NS: Final = 4 * TURN_NS
"""After so long of the lines the loop looks for newcomers."""


class Member(Protocol):
    """A connection that stands in line."""

    @property
    def account(self) -> "Account":
        """Of its address."""
        ...

    def take_turn(self, now_ns: int) -> None:
        """Serve what is ready, for `TURN_NS` or one request more; join again if more is."""
        ...

    def fail(self, error: Exception) -> None:
        """End: `take_turn` raised this."""
        ...


class Account:
    """What the connections of an address have used of the loop's time.

    Attributes:
        line: those that wait for their turn, the first comer first.
        used_ns: since it was last new.
        is_over: it has had its turn: its connections wait, until the next turn of the loop at
            least.
    """

    __slots__ = ("__weakref__", "is_over", "line", "used_ns")

    def __init__(self) -> None:
        self.line: dict[Member, None] = {}
        self.used_ns = 0
        self.is_over = False


class Turns:
    """The lines of all addresses; belongs to one event loop."""

    def __init__(self, clock: Clock, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """`call_soon` has a function called in the next turn of the loop."""
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
        """Stand in line, at its end; those who do already stay where they are."""
        account = one.account
        account.line.setdefault(one)
        account.is_over = True
        self._waiting.setdefault(account)
        self._call()

    def leave(self, one: Member) -> None:
        """Wait no longer."""
        one.account.line.pop(one, None)

    def end(self, account: Account) -> None:
        """The address has had its turn."""
        account.is_over = True
        self._resting.append(account)
        self._call()

    def _call(self) -> None:
        if not self._call_is_due:
            self._call_is_due = True
            self._call_soon(self._take)

    def _take(self) -> None:
        try:
            self._serve_lines()
        finally:
            self._call_is_due = False
            if self._waiting:
                self._call()

    def _serve_lines(self) -> None:
        now_ns = self._clock.monotonic_ns()
        end_ns = now_ns + LINES_NS
        for account in self._resting:
            account.used_ns, account.is_over = 0, bool(account.line)
        self._resting.clear()
        while self._waiting and now_ns < end_ns:
            account = next(iter(self._waiting))
            del self._waiting[account]  # the other addresses are before it now
            now_ns = self._take_turn(account, now_ns)

    def _take_turn(self, account: Account, begun_ns: int) -> int:
        """Serve connections of an address; returns the time when it was over."""
        now_ns = begun_ns
        while account.line and now_ns < begun_ns + TURN_NS:
            one = next(iter(account.line))
            del account.line[one]
            try:
                one.take_turn(now_ns)
            except Exception as error:  # noqa: BLE001 - it ends; the others continue
                one.fail(error)
            now_ns = self._clock.monotonic_ns()
        account.is_over = bool(account.line)
        if account.line:
            self._waiting[account] = None
        return now_ns
