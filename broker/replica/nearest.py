"""The consumers that a leader sends to a replica in their rack, and that return (KIP-392).

A follower refuses a read that it cannot answer with certainty, for instance while its remote tier
is unavailable. Its consumer then returns to the leader, and would go back and forth for as long as
the follower refuses. So a consumer that returns soon without having read anything stays for a
while. DIFFERS: Kafka's leader names the same replica again each time.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

BACK_WITHIN_MS: Final = 10_000
"""A client keeps to the named replica for minutes: one that is back by then was refused."""
STAYS_MS: Final = 60_000
REMEMBERED_MAX: Final = 10_000
"""Consumers and partitions within these times; above it the oldest are forgotten."""

Peer = tuple[str, int]
"""Address and port of a client."""
Reader = tuple[Peer, bytes, int]
"""A consumer of one partition: its connection, topic id and partition."""


@dataclass(slots=True)
class _Sent:
    offset: int
    at_ms: int
    stays_until_ms: int = -1


class SentElsewhere:
    """The consumers that one broker has recently sent to other replicas."""

    __slots__ = ("_sent",)

    def __init__(self) -> None:
        """Begin without any consumer."""
        self._sent: OrderedDict[Reader, _Sent] = OrderedDict()

    def may_send(self, reader: Reader, offset: int, now_ms: int) -> bool:
        """True if a consumer that asks for an offset is to be sent elsewhere.

        Args:
            reader: Its connection to this leader, which it keeps, and the partition.
            offset: Next offset that it reads.
            now_ms: Any clock that never goes back.
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
        """Note that a consumer was sent to another replica."""
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
