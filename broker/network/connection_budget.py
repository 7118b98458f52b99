"""How many connections leave enough descriptors for files. Pure.

Connections are taken while a reserve of descriptors is free; files may use it at any time, for
segments, indexes and checkpoints are opened when they are needed. Where they have taken half of it,
idle connections give theirs up until it is whole again: a client connects again, a broker without
files serves nobody. Clients that were turned away get in by the same means: the longest idle one
gives way.
"""

import sys
from dataclasses import dataclass
from typing import Final

NEWCOMERS_MAX: Final = 64
"""So many get in at a time."""


@dataclass(frozen=True, slots=True)
class ConnectionBudget:
    """What the process may have open.

    Attributes:
        limit: descriptors of all kinds.
        shared: of those, how many may be in use when a connection is taken; the rest is reserved.
    """

    limit: int
    shared: int

    @property
    def noticeable(self) -> int:
        """With fewer connections nothing is to be gained from them; nor where none is reserved."""
        return (self.limit - self.shared) // 2 if self.shared < self.limit else sys.maxsize

    def for_partitions(self, open_count: int, giving_way: int) -> int:
        """How many files new partitions may open, below 0 where too many are open.

        They may take the place of idle connections, and for the moment until these go three
        quarters of the reserve: from half of it on the connections do go.

        Args:
            open_count: descriptors in use.
            giving_way: idle connections that would go.
        """
        return self.shared - open_count + min(giving_way, (self.limit - self.shared) * 3 // 4)

    def connections_max(self, open_count: int, connections: int) -> int:
        """How many connections there may be, with what else is open now."""
        return max(self.shared - (open_count - connections), 0)

    def connections_to_close(self, open_count: int, turned_away: int) -> int:
        """How many connections should go.

        Args:
            open_count: descriptors in use.
            turned_away: connections that were refused for want of descriptors meanwhile.
        """
        over = open_count - self.shared
        if turned_away == 0 and over <= self.noticeable:
            return 0
        return max(over, 0) + min(turned_away, NEWCOMERS_MAX)
