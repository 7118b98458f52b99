"""Which consumers a leader sends to a replica in their rack, and which come back (KIP-392).

A follower refuses what it cannot tell for sure, for instance while its remote tier is away, and
its consumer comes back to the leader. To be sent there again at once would continue for as long as
the follower refuses: a consumer that is back soon without having read anything stays for a while.
DIFFERS: Kafka's leader names the same replica again each time.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

BACK_WITHIN_MS: Final = 10_000
"""A client keeps to the replica that was named for minutes: who is back by then was refused."""
STAYS_MS: Final = 60_000
REMEMBERED_MAX: Final = 10_000
"""Consumers and partitions within these times; of more the first ones are forgotten."""

Peer = tuple[str, int]
"""The other side of a connection."""
Reader = tuple[Peer, bytes, int]
"""A consumer of one partition: its connection, topic id and partition."""


@dataclass(slots=True)
class _Sent:
    offset: int
    at_ms: int
    stays_until_ms: int = -1


class SentElsewhere:
    """The consumers that one broker has sent to other replicas lately."""

    __slots__ = ("_sent",)

    def __init__(self) -> None:
        """Nobody was sent anywhere."""
        self._sent: OrderedDict[Reader, _Sent] = OrderedDict()

    def may_send(self, reader: Reader, offset: int, now_ms: int) -> bool:
        """Whether a consumer that asks for an offset is to be sent elsewhere.

        Args:
            reader: its connection to this leader, which it keeps, and the partition.
            offset: where it reads next.
            now_ms: any clock that never goes back.
        """
        known = self._sent.get(reader)
        if known is None:
            return True
        if now_ms < known.stays_until_ms:
            return False
        if offset == known.offset and now_ms < known.at_ms + BACK_WITHIN_MS:
            known.stays_until_ms = now_ms + STAYS_MS
            return False
        return True

    def sent(self, reader: Reader, offset: int, now_ms: int) -> None:
        """It was told to read there."""
        while self._sent:
            oldest = next(iter(self._sent))
            is_over = self._sent[oldest].at_ms < now_ms - BACK_WITHIN_MS - STAYS_MS
            if not is_over and len(self._sent) < REMEMBERED_MAX:
                break
            del self._sent[oldest]
        self._sent[reader] = _Sent(offset, now_ms)
        self._sent.move_to_end(reader)

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._sent)
