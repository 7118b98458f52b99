"""CPU of a broker for a small request, and the share of timing the request.

    python -m benchmarks.small_requests [--requests 20000]

The first figures are the broker's CPU for single requests over loopback: a Produce of a record of
100 bytes, a Fetch of it and a Metadata of its topic. The next figure is the CPU for timing a
request, in this process. It covers the lines of `broker.network` that serve only this, with all
that they call. The last figures are its share. All are the least of some rounds.
"""

import argparse
import socket
import sys
import tempfile
from pathlib import Path
from timeit import repeat
from typing import Final

from benchmarks import brokers
from benchmarks.fetch_cpu import asked, cpu_us, fetch
from benchmarks.stall_probe import Client, frame, produce_frame
from benchmarks.stall_scenarios import batch, build, created, produced
from broker.network.registry import RequestContext
from broker.network.request_times import RequestTimes
from broker.network.sender import Sender
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from runtime.clock import SystemClock
from runtime.disk import Disk
from runtime.metrics import Registry

TOPIC: Final = "small"
WARM: Final = 500
ROUNDS: Final = 5
TIMED: Final = 1_000_000
TIMED_AT_ONCE: Final = 320
"""20 times as many as there is one that is written down."""


def requests() -> dict[str, bytes]:
    """A small request of each kind, by name."""
    metadata = codec.request(ApiKey.METADATA).cls
    return {
        "Produce": produce_frame({(TOPIC, 0): batch(b"x" * 100)}),
        "Fetch": frame(ApiKey.FETCH, 11, fetch([asked(TOPIC, {0: 0})], min_bytes=1)),
        "Metadata": frame(
            ApiKey.METADATA, 8, build(ApiKey.METADATA, topics=[metadata.Topics(name=TOPIC)])
        ),
    }


def request_us(client: Client, pid: int, request: bytes, count: int) -> float:
    """CPU of the broker for one request: the least of some rounds."""
    for _ in range(WARM):
        client.exchange(request)
    found = []
    for _ in range(ROUNDS):
        before = cpu_us(pid)
        for _ in range(count // ROUNDS):
            client.exchange(request)
        found.append((cpu_us(pid) - before) * ROUNDS / count)
    return min(found)


class Timed:
    """The parts of the network that time a request, without the rest."""

    def __init__(self, sender: Sender) -> None:
        self._now_ns = SystemClock().monotonic_ns
        self._sender = sender
        self._times = RequestTimes(Registry(), "Produce")
        self._context = RequestContext(0, 9, 1, "", "PLAINTEXT", ("::1", 9), 0)

    def begin(self) -> None:
        """Let a request be received now."""
        self._context.received_ns = self._now_ns()

    def serve(self) -> None:
        """Do the timing of dispatcher, sender and outflow for a request with an answer at once."""
        context = self._context
        context.begun_ns = context.received_ns
        ready_ns = self._now_ns()
        times = self._times.answered(context, ready_ns)
        self._sender.sending.append((100, ready_ns, self._times, times))
        self._sender.note_sent(self._now_ns())


def timing_us() -> float:
    """CPU of timing one request: all of them below a millisecond, as small ones are."""
    ends = socket.socketpair()
    timed = Timed(Sender(ends[0], Disk()))
    least = min(
        one
        for _ in range(TIMED // TIMED_AT_ONCE)
        for one in repeat(timed.serve, setup=timed.begin, number=TIMED_AT_ONCE, repeat=1)
    )
    for one in ends:
        one.close()
    return least / TIMED_AT_ONCE * 1e6


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=20_000)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="small-requests-") as data,
        brokers.tidemark(Path(data) / "broker", tiered=False) as broker,
        Client(broker.bootstrap) as client,
    ):
        created(client, [TOPIC], 1)
        produced(client, [produce_frame({(TOPIC, 0): batch(b"x" * 100)})])
        costs = {
            name: request_us(client, broker.pid, request, options.requests)
            for name, request in requests().items()
        }
    timing = timing_us()
    sys.stdout.write(f"timing: {timing:.2f} us\n")
    for name, cost in costs.items():
        sys.stdout.write(f"{name}: {cost:.1f} us, {100 * timing / cost:.2f} % of it is timing\n")


if __name__ == "__main__":
    main()
