"""Holds back replicas that are far behind, where a person said so, mostly while they are moved.

`follower.replication.throttled.rate` bounds what all throttled replicas of a broker fetch together;
`follower.replication.throttled.replicas` of a topic says which are. A replica that has all that is
committed is never held back: acks=all would wait for it.

What was fetched is a debt that time pays back at that rate; while there is one, no throttled
replica is asked for. DIFFERS: Kafka looks at the mean of `replication.quota.window.num` samples.

The first Fetch of a replica is not held back, and what it brings is not cut: of N replicas that
begin at once up to N times `replica.fetch.max.bytes` come beyond the rate, and are paid back before
any of them is asked for again. A broker that starts again owes nothing.

Source: KIP-73.
"""

from collections.abc import Callable
from typing import Final

from broker.replica.partition import Partition
from runtime.clock import Clock

EVERY_MS: Final = 1_000
"""The longest pause: then the rate is looked at again, which may be another."""


class FollowerThrottle:
    """The debt of one broker."""

    def __init__(self, node_id: int, clock: Clock, rate: Callable[[], int]) -> None:
        """Owe nothing.

        Args:
            node_id: of this broker.
            clock: by which debts are paid back.
            rate: bytes a second, as the settings say now; 0: nothing is fetched.
        """
        self._node_id, self._clock, self._rate = node_id, clock, rate
        self._debt, self._paid_ms = 0, clock.monotonic_ms()  # in thousandths of bytes

    def pause_ms(self, partition: Partition, lag: int) -> int:
        """How long a replica that lacks `lag` committed records is not asked for; 0: it may be."""
        if not lag or not self._is_throttled(partition):
            return 0
        self._pay()
        rate = self._rate()
        return min(self._debt // rate, EVERY_MS) if rate else EVERY_MS

    def took(self, partition: Partition, size_bytes: int) -> None:
        """A replica has fetched so much."""
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
