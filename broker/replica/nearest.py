"""Which consumers a leader sends to a replica in their rack, and which come back (KIP-392).

A follower refuses what it cannot tell for sure, for instance while its remote tier is away, and
its consumer comes back to the leader. To be sent there again at once would go on for as long as
the follower refuses: a consumer that is back soon without having read anything stays for a while.
DIFFERS: Kafka's leader names the same replica again each time.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

BACK_WITHIN_MS: Final = 10_000
"""A client keeps to the replica that was named for minutes: who is back by then was refused."""
STAYS_MS: Final = 60_000
CONSUMERS_MAX: Final = 1_000
"""Of a partition within these times; of more the first ones are forgotten."""

Peer = tuple[str, int]
"""The other side of a connection."""


@dataclass(slots=True)
class _Sent:
    offset: int
    at_ms: int
    stays_until_ms: int = -1


class SentElsewhere:
    """The consumers of one partition that were sent to another replica lately."""

    __slots__ = ("_sent",)

    def __init__(self) -> None:
        """Nobody was sent anywhere."""
        self._sent: OrderedDict[Peer, _Sent] = OrderedDict()

    def may_send(self, peer: Peer, offset: int, now_ms: int) -> bool:
        """Whether a consumer that asks for an offset is to be sent; it counts as sent then.

        Args:
            peer: its connection to this leader, which it keeps.
            offset: where it reads next.
            now_ms: any clock that never goes back.
        """
        self._forget(now_ms - BACK_WITHIN_MS - STAYS_MS)
        known = self._sent.get(peer)
        if known is not None:
            if now_ms < known.stays_until_ms:
                return False
            if offset == known.offset and now_ms < known.at_ms + BACK_WITHIN_MS:
                known.stays_until_ms = now_ms + STAYS_MS
                return False
        self._sent[peer] = _Sent(offset, now_ms)
        self._sent.move_to_end(peer)
        if len(self._sent) > CONSUMERS_MAX:
            self._sent.popitem(last=False)
        return True

    def _forget(self, before_ms: int) -> None:
        while self._sent:
            peer, oldest = next(iter(self._sent.items()))
            if oldest.at_ms >= before_ms:
                return
            del self._sent[peer]

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._sent)
