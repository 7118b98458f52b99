"""How long requests take, by API, under Kafka's names.

Every request is measured; of those below `SLOW_NS` one in `FAST_COUNTED` is written down, for all.
So counts are exact up to that number, and a small request pays little more than two readings of a
clock.

DIFFERS: the total ends when the answer is ready for the connection. What a peer then takes to read
it is in `kafka_server_socket_server_metrics`, by listener, for a connection sends many answers at
once. Kafka's ResponseQueueTimeMs and ResponseSendTimeMs do not exist.
Source: kafka.network:type=RequestMetrics of Apache Kafka 4.3.
"""

from typing import Final

from broker.network.registry import RequestContext
from runtime.metrics import Registry

SLOW_NS: Final = 1_000_000
FAST_COUNTED: Final = 16
_MS_NS: Final = 1_000_000
_BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000)
_PARTS: Final = {
    "TotalTimeMs": "From a request's last byte to its answer",
    "RequestQueueTimeMs": "Of TotalTimeMs: before the request was begun",
    "LocalTimeMs": "Of TotalTimeMs: until it was answered, or put off",
    "RemoteTimeMs": "Of TotalTimeMs: put off, for replicas, records, disks, the tier or a turn",
}


class RequestTimes:
    """The times of one API's requests.

    Attributes:
        fast: requests below `SLOW_NS` so far.
    """

    __slots__ = ("_name", "_parts", "fast")

    def __init__(self, metrics: Registry, name: str) -> None:
        """Take Kafka's name of the API, such as Produce."""
        self.fast = 0
        self._name = name
        self._parts = [
            metrics.histogram(
                f"kafka_network_RequestMetrics_{part}", text, ("request",), _BUCKETS_MS
            )
            for part, text in _PARTS.items()
        ]

    def answered(self, context: RequestContext, now_ns: int) -> None:
        """Note that the answer is ready.

        Args:
            context: with the times at which it was received, begun and left to others.
            now_ns: monotonic.
        """
        total_ns, times = now_ns - context.received_ns, 1
        if total_ns < SLOW_NS:
            self.fast += 1
            if self.fast % FAST_COUNTED:
                return
            times = FAST_COUNTED
        queue_ns = context.begun_ns - context.received_ns
        remote_ns = now_ns - context.returned_ns if context.returned_ns else 0
        local_ns = total_ns - queue_ns - remote_ns
        for part, ns in zip(self._parts, (total_ns, queue_ns, local_ns, remote_ns), strict=True):
            part.observe(ns / _MS_NS, self._name, times=times)
