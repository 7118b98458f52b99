"""Holds back replicas that are far behind, where an operator set a rate, mostly while they move.

`follower.replication.throttled.rate` bounds what all throttled replicas of a broker fetch together;
`follower.replication.throttled.replicas` of a topic names them. A replica that has all committed
records is never held back: acks=all would wait for it.

Fetched bytes are a debt that time pays back at that rate; while there is one, no throttled replica
is fetched. DIFFERS: Kafka looks at the mean of `replication.quota.window.num` samples.

The first Fetch of a replica is not held back, and its answer is not bounded by the rate. So N
replicas that begin at once may exceed it by N times `replica.fetch.max.bytes`, which is paid back
before any of them is fetched again. A broker that starts again owes nothing.

Source: KIP-73.
"""

from collections.abc import Callable
from typing import Final

from broker.replica.partition import Partition
from runtime.clock import Clock

EVERY_MS: Final = 1_000
"""The longest pause: after it the rate is read again, which may have changed."""


class FollowerThrottle:
    """The debt of one broker."""

    def __init__(self, node_id: int, clock: Clock, rate: Callable[[], int]) -> None:
        """Owe nothing.

        Args:
            node_id: Of this broker.
            clock: Monotonic; its time pays debts back.
            rate: The present setting, bytes a second; 0: nothing is fetched.
        """
        self._node_id, self._clock, self._rate = node_id, clock, rate
        self._debt, self._paid_ms = 0, clock.monotonic_ms()  # in thousandths of bytes

    def pause_ms(self, partition: Partition, lag: int) -> int:
        """Time until a replica that lacks `lag` committed records may be fetched; 0: now."""
        if not lag or not self._is_throttled(partition):
            return 0
        self._pay()
        rate = self._rate()
        return min(self._debt // rate, EVERY_MS) if rate else EVERY_MS

    def took(self, partition: Partition, size_bytes: int) -> None:
        """Add the bytes that a replica has fetched."""
        if self._is_throttled(partition):
            self._pay()
            self._debt += size_bytes * 1_000

    def _pay(self) -> None:
        now_ms = self._clock.monotonic_ms()
        paid = (now_ms - self._paid_ms) * self._rate()
        self._debt, self._paid_ms = max(self._debt - paid, 0), now_ms

    def _is_throttled(self, partition: Partition) -> bool:
        named = partition.log.config.follower_replication_throttled_replicas
        return "*" in named or f"{partition.partition}:{self._node_id}" in named
