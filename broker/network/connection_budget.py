"""Number of connections that leaves enough descriptors for files. Pure.

New connections are accepted while a reserve of descriptors is free. Files may use the reserve at
any time: segments, indexes and checkpoints are opened on demand. When files have taken half of it,
idle connections are closed until it is whole again. A client can reconnect, but a broker that
cannot open files serves no client. Refused clients get in the same way: the connections that have
been idle longest are closed for them.
"""

import sys
from dataclasses import dataclass
from typing import Final

NEWCOMERS_MAX: Final = 64
"""Idle connections closed for refused clients at one time."""


@dataclass(frozen=True, slots=True)
class ConnectionBudget:
    """Limits on the descriptors of the process.

    Attributes:
        limit: Descriptors of all kinds.
        shared: Descriptors that may be in use when a connection is accepted; the rest is the
            reserve.
    """

    limit: int
    shared: int

    @property
    def noticeable(self) -> int:
        """Below this many connections, closing them gains nothing; infinite without a reserve."""
        return (self.limit - self.shared) // 2 if self.shared < self.limit else sys.maxsize

    def for_partitions(self, open_count: int, giving_way: int) -> int:
        """How many files new partitions may open; below 0 if too many are open.

        New partitions may use the descriptors of idle connections. Until those are closed, they may
        use three quarters of the reserve: connections are closed from half of it on.

        Args:
            open_count: Descriptors in use.
            giving_way: Idle connections that would be closed.
        """
        return self.shared - open_count + min(giving_way, (self.limit - self.shared) * 3 // 4)

    def connections_max(self, open_count: int, connections: int) -> int:
        """How many connections may be open beside the descriptors that others use now."""
        return max(self.shared - (open_count - connections), 0)

    def connections_to_close(self, open_count: int, turned_away: int) -> int:
        """How many idle connections should be closed.

        Args:
            open_count: Descriptors in use.
            turned_away: Connections refused for lack of descriptors since the last call.
        """
        over = open_count - self.shared
        if turned_away == 0 and over <= self.noticeable:
            return 0
        return max(over, 0) + min(turned_away, NEWCOMERS_MAX)
