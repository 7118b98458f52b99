"""The last five minutes of a node's totals: rates between samples, and increases. Pure.

A sample has one number a name, for any number of topics and partitions. A counter begins at 0 with
its process, so a total that falls has begun again, as in Prometheus's `rate` and `increase`.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

EVERY_MS: Final = 5_000
SAMPLES: Final = 60

_TOPICS: Final = "kafka_server_BrokerTopicMetrics_"
BROKER_TOTALS: Final[Mapping[str, str]] = {
    "bytes_in": f"{_TOPICS}BytesInPerSec_total",
    "bytes_out": f"{_TOPICS}BytesOutPerSec_total",
    "messages_in": f"{_TOPICS}MessagesInPerSec_total",
    "produce_requests": f"{_TOPICS}TotalProduceRequestsPerSec_total",
    "fetch_requests": f"{_TOPICS}TotalFetchRequestsPerSec_total",
    "failed_produce": f"{_TOPICS}FailedProduceRequestsPerSec_total",
    "failed_fetch": f"{_TOPICS}FailedFetchRequestsPerSec_total",
    "replication_bytes_in": f"{_TOPICS}ReplicationBytesInPerSec_total",
    "replication_bytes_out": f"{_TOPICS}ReplicationBytesOutPerSec_total",
    "remote_fetch_bytes": f"{_TOPICS}RemoteFetchBytesPerSec_total",
    "remote_fetches": "tidemark_remote_fetches_with_bytes_total",
    "remote_fetch_errors": f"{_TOPICS}RemoteFetchErrorsPerSec_total",
    "remote_fetch_expired": "kafka_server_DelayedRemoteFetchMetrics_ExpiresPerSec_total",
}
"""Counters in the broker, each with its metric."""

TIER_TOTALS: Final = (
    "remote_copy_bytes",
    "remote_copy_requests",
    "remote_copy_errors",
    "remote_delete_requests",
    "remote_delete_errors",
)
"""Counters in the tier process, which begin at 0 with each tier process."""

NAMES: Final = (*BROKER_TOTALS, *TIER_TOTALS)

_DIGITS: Final = 3


class Growth(NamedTuple):
    """The increase of a total since its last known value, and the time that passed."""

    amount: float
    passed_ms: int


class History:
    """Keeps the newest samples."""

    def __init__(self) -> None:
        self._samples: deque[Mapping[str, Growth]] = deque(maxlen=SAMPLES)
        self._known: dict[str, tuple[float, int]] = {}  # totals with their times
        self._began_ms = 0

    def add(self, at_ms: int, totals: Mapping[str, float]) -> None:
        """Keep a sample.

        Args:
            at_ms: Its time, monotonic.
            totals: By name; an unknown one is left out.
        """
        if not self._samples:
            self._began_ms = at_ms
        grown = {}
        for name, total in totals.items():
            before, known_ms = self._known.get(name, (0, self._began_ms))
            amount = total - before if total >= before else total
            grown[name] = Growth(amount, at_ms - known_ms)
            self._known[name] = total, at_ms
        self._samples.append(grown)

    def rates(self) -> dict[str, list[float | None]]:
        """Rates per second by name, the oldest first: one value between two samples.

        None where the total was not known; the next value spreads the increase over that time.
        """
        return {name: [_rate(one.get(name)) for one in self._later()] for name in NAMES}

    def increases(self) -> dict[str, float]:
        """The increase since the oldest sample, by name."""
        nothing = Growth(0, 0)
        return {name: sum(one.get(name, nothing).amount for one in self._later()) for name in NAMES}

    def _later(self) -> Iterator[Mapping[str, Growth]]:
        return islice(self._samples, 1, None)


def _rate(grown: Growth | None) -> float | None:
    if grown is None or grown.passed_ms <= 0:
        return None
    return round(grown.amount * 1_000 / grown.passed_ms, _DIGITS)
