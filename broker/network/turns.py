"""Which connection is served next: addresses have their turns, and connections of an address.

A connection is served as soon as it is readable while its address has used little of the event
loop's time. Where the address has had its turn its connections stand in line, and the lines are
served for some milliseconds before the loop looks again for who else has something to ask: longer a
client does not wait, however many connections others keep busy.

DIFFERS: Kafka has the requests of all connections in one queue, one of each connection.
"""

from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from runtime.clock import Clock

TURN_US: Final = 1_000
"""After so long others are served: a request may cost a hundred times another."""
LINES_US: Final = 4 * TURN_US
"""After so long of the lines the loop looks for newcomers."""
SHARE: Final = 2
"""An address is in line when it has used more than one part in so many of the time, and a turn."""


class Member(Protocol):
    """A connection that stands in line."""

    @property
    def account(self) -> "Account":
        """Of its address."""
        ...

    def take_turn(self, now_us: int) -> None:
        """Serve what is ready, for `TURN_US` or one request more; join again if more is."""
        ...


class Account:
    """What the connections of an address have used of the loop's time.

    Attributes:
        line: those that wait for their turn, the first comer first.
        until_us: when the time that was used is paid back.
    """

    __slots__ = ("__weakref__", "line", "until_us")

    def __init__(self) -> None:
        self.line: dict[Member, None] = {}
        self.until_us = 0

    def is_over(self, now_us: int) -> bool:
        """Whether the address has had its turn, or some of its connections wait for theirs."""
        return bool(self.line) or self.until_us > now_us + TURN_US

    def use(self, since_us: int, now_us: int) -> None:
        """Note the time that a connection was served."""
        owed_us = max(self.until_us, since_us) + SHARE * (now_us - since_us)
        self.until_us = min(owed_us, now_us + SHARE * TURN_US)


class Turns:
    """The lines of all addresses; belongs to one event loop."""

    def __init__(self, clock: Clock, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """`call_soon` has a function called in the next turn of the loop."""
        self._clock, self._call_soon = clock, call_soon
        self._accounts: WeakValueDictionary[str, Account] = WeakValueDictionary()
        self._waiting: dict[Account, None] = {}
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
        if one not in account.line:
            account.line[one] = None
            self._waiting.setdefault(account)
            self._call()

    def leave(self, one: Member) -> None:
        """Wait no longer."""
        account = one.account
        account.line.pop(one, None)
        if not account.line:
            self._waiting.pop(account, None)

    def _call(self) -> None:
        if not self._call_is_due:
            self._call_is_due = True
            self._call_soon(self._take)

    def _take(self) -> None:
        now_us = self._clock.monotonic_us()
        end_us = now_us + LINES_US
        while self._waiting and now_us < end_us:
            account = next(iter(self._waiting))
            del self._waiting[account]  # the other addresses are before it now
            now_us = self._take_turn(account, now_us)
        self._call_is_due = False
        if self._waiting:
            self._call()

    def _take_turn(self, account: Account, begun_us: int) -> int:
        """Serve connections of an address; returns the time when it was over."""
        now_us = begun_us
        while account.line and now_us < begun_us + TURN_US:
            one = next(iter(account.line))
            del account.line[one]
            one.take_turn(now_us)
            now_us = self._clock.monotonic_us()
        account.use(begun_us, now_us)
        if account.line:
            self._waiting[account] = None
        return now_us
