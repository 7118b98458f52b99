"""The last five minutes of a node's totals, and the rates between them. Pure.

A sample has one number a name, whatever number of topics and partitions there is.
"""

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

EVERY_MS: Final = 5_000
SAMPLES: Final = 60

BROKER_TOTALS: Final[Mapping[str, str]] = {
    "bytes_in": "BytesInPerSec",
    "bytes_out": "BytesOutPerSec",
    "messages_in": "MessagesInPerSec",
    "produce_requests": "TotalProduceRequestsPerSec",
    "fetch_requests": "TotalFetchRequestsPerSec",
    "failed_produce": "FailedProduceRequestsPerSec",
    "failed_fetch": "FailedFetchRequestsPerSec",
    "replication_bytes_in": "ReplicationBytesInPerSec",
    "replication_bytes_out": "ReplicationBytesOutPerSec",
    "remote_fetch_bytes": "RemoteFetchBytesPerSec",
    "remote_fetch_requests": "RemoteFetchRequestsPerSec",
    "remote_fetch_errors": "RemoteFetchErrorsPerSec",
}
"""Counted in the broker: by which of Kafka's metrics of topics."""

TIER_TOTALS: Final = (
    "remote_copy_bytes",
    "remote_copy_requests",
    "remote_copy_errors",
    "remote_delete_requests",
    "remote_delete_errors",
)
"""Counted in the tier process, which begins again at 0 when it is started again."""

NAMES: Final = (*BROKER_TOTALS, *TIER_TOTALS)

_DIGITS: Final = 3


class Sample(NamedTuple):
    """Totals of one moment; a total that was not known then is left out."""

    at_ms: int
    totals: Mapping[str, float]


class History:
    """Keeps the newest samples."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)

    def add(self, at_ms: int, totals: Mapping[str, float]) -> None:
        """Keep a sample, taken at `at_ms` of the monotonic clock."""
        self._samples.append(Sample(at_ms, totals))

    def total(self, name: str) -> float | None:
        """What the newest sample says; None where it does not."""
        return self._samples[-1].totals.get(name) if self._samples else None

    def rates(self) -> dict[str, list[float | None]]:
        """Per second, by name, the oldest first: one value between two samples.

        None stands where one of both is not known, or the total fell: what counts was started
        again.
        """
        pairs = list(pairwise(self._samples))
        return {name: [_rate(name, *pair) for pair in pairs] for name in NAMES}


def _rate(name: str, older: Sample, newer: Sample) -> float | None:
    before, after = older.totals.get(name), newer.totals.get(name)
    passed_ms = newer.at_ms - older.at_ms
    if before is None or after is None or after < before or passed_ms <= 0:
        return None
    return round((after - before) * 1_000 / passed_ms, _DIGITS)
