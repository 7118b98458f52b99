"""How long requests take, by API, under Kafka's names.

Every request is measured, until its answer is ready and then until that is sent; of those below
`SLOW_NS` the first is written down, and then one in `FAST_COUNTED`, for all. So counts are exact up
to that number, and a small request pays little more than two readings of a clock:
`benchmarks.small_requests` says how much. Sends that take that long are all written down, others
with their requests.

A request begins with the turn of its connection: no clock is read for it. So what others of the
same turn took, less than `slices.SLICE_NS`, is in its LocalTimeMs.

DIFFERS: the total ends when the answer is ready for the connection, and what a peer takes to read
it is in ResponseSendTimeMs alone: a connection sends many answers at once. The time that an answer
waits for earlier ones of its connection is there, too: Kafka's ResponseQueueTimeMs does not exist.
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
    "ResponseSendTimeMs": "After TotalTimeMs: until the answer's last byte is with the socket",
}


class RequestTimes:
    """The times of one API's requests."""

    __slots__ = ("_fast_left", "_local", "_queue", "_remote", "_send", "_stands_for", "_total")

    def __init__(self, metrics: Registry, name: str) -> None:
        """Take Kafka's name of the API, such as Produce."""
        self._total, self._queue, self._local, self._remote, self._send = (
            metrics.histogram(
                f"kafka_network_RequestMetrics_{part}", text, ("request",), _BUCKETS_MS
            ).labels(name)
            for part, text in _PARTS.items()
        )
        self._fast_left = self._stands_for = 1  # the first is written down

    def answered(self, context: RequestContext, now_ns: int) -> int:
        """Note that the answer is ready, or that there is none.

        Args:
            context: with the times at which it was received, begun and left to others.
            now_ns: monotonic.

        Returns:
            For how many requests it was written down; 0: it was not.
        """
        total_ns, times = now_ns - context.received_ns, 1
        if total_ns < SLOW_NS:
            self._fast_left -= 1
            if self._fast_left:
                return 0
            times, self._stands_for, self._fast_left = self._stands_for, FAST_COUNTED, FAST_COUNTED
        queue_ns = context.begun_ns - context.received_ns
        remote_ns = now_ns - context.returned_ns if context.returned_ns else 0
        self._total.observe(total_ns / _MS_NS, times)
        self._queue.observe(queue_ns / _MS_NS, times)
        self._local.observe((total_ns - queue_ns - remote_ns) / _MS_NS, times)
        self._remote.observe(remote_ns / _MS_NS, times)
        return times

    def sent(self, send_ns: int, times: int) -> None:
        """Note that the last byte of an answer is with the socket.

        Args:
            send_ns: since it was ready.
            times: as `answered` returned it; a slow send stands for itself alone.
        """
        self._send.observe(send_ns / _MS_NS, 1 if send_ns >= SLOW_NS else times)
