"""How long requests take, by API, under Kafka's names.

Every request is timed, until its answer is ready and then until that is sent. Requests faster than
`SLOW_NS` are sampled: the first is recorded, and then one in `FAST_COUNTED`, with that weight. So
counts are exact up to `FAST_COUNTED`, and a small request pays for little more than two clock
readings (`benchmarks.small_requests` measures it). Slow requests and slow sends are all recorded; a
fast send is recorded if its request was.

The queue time ends with the begin of the connection's time slice, so no clock is read for it. So
the time of earlier requests in the same slice, less than `time_slices.SLICE_NS`, is in LocalTimeMs.

DIFFERS: TotalTimeMs ends when the answer is ready for the connection, because a connection sends
many answers at once. ResponseSendTimeMs has the time a peer takes to read it, and the time the
answer waits for earlier ones of its connection. Kafka's ResponseQueueTimeMs does not exist. Source:
kafka.network:type=RequestMetrics of Apache Kafka 4.3.
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
        """`name` is Kafka's name of the API, such as Produce."""
        self._total, self._queue, self._local, self._remote, self._send = (
            metrics.histogram(
                f"kafka_network_RequestMetrics_{part}", text, ("request",), _BUCKETS_MS
            ).labels(name)
            for part, text in _PARTS.items()
        )
        self._fast_left = self._stands_for = 1  # the first is recorded

    def answered(self, context: RequestContext, now_ns: int) -> int:
        """Record that the answer is ready, or that there is none.

        Args:
            context: Has the times at which it was received, begun and left to others.
            now_ns: Monotonic.

        Returns:
            The number of requests that this one was recorded for; 0: it was not recorded.
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
        """Record that the last byte of an answer is in the socket.

        Args:
            send_ns: Since it was ready.
            times: Result of `answered`; a slow send counts once.
        """
        self._send.observe(send_ns / _MS_NS, 1 if send_ns >= SLOW_NS else times)
