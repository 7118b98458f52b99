"""Times of requests: parts that add up, slow ones all counted, fast ones one in sixteen for all."""

from typing import Any

import pytest

from broker.network.registry import RequestContext
from broker.network.request_times import FAST_COUNTED, RequestTimes
from runtime.metrics import Registry
from tests.support.worlds.network import frame, serving
from tests.support.worlds.waiting import until
from tests.unit.broker.network.test_network_order import Served, change, produce, world

MS = 1_000_000
PARTS = ("TotalTimeMs", "RequestQueueTimeMs", "LocalTimeMs", "RemoteTimeMs")


def context(received: int, begun: int, returned: int = 0) -> RequestContext:
    return RequestContext(
        0, 9, 1, "", "PLAINTEXT", ("::1", 9), 0,
        received_ns=received, begun_ns=begun, returned_ns=returned,
    )  # fmt: skip


def values(metrics: Registry, part: str) -> dict[str, Any]:
    """Of one part: buckets by their bound, sum and count."""
    name = f"kafka_network_RequestMetrics_{part}"
    found: dict[str, Any] = {}
    for one in metrics.samples():
        if one.name.startswith(name + "_"):
            assert one.labels["request"] == "Produce"
            found[one.labels.get("le", one.name.removeprefix(name + "_"))] = one.value
    return found


def test_the_parts_of_a_slow_request_add_up_to_its_total() -> None:
    metrics = Registry()
    RequestTimes(metrics, "Produce").answered(context(5 * MS, 7 * MS, 10 * MS), 20 * MS)
    sums = [values(metrics, part)["sum"] for part in PARTS]
    assert sums == [15, 2, 3, 10]


def test_a_request_that_is_answered_at_once_waited_for_nothing() -> None:
    metrics = Registry()
    RequestTimes(metrics, "Produce").answered(context(5 * MS, 6 * MS), 9 * MS)
    assert [values(metrics, part)["sum"] for part in PARTS] == [4, 1, 3, 0]


def test_each_slow_request_is_counted_and_of_fast_ones_one_for_sixteen() -> None:
    metrics = Registry()
    times = RequestTimes(metrics, "Produce")
    for number in range(100):
        times.answered(context(0, 0), MS // 2)
        if number % 10 == 0:
            times.answered(context(0, 0), 7 * MS)
    found = values(metrics, "TotalTimeMs")
    fast = 100 // FAST_COUNTED * FAST_COUNTED
    assert (found["1"], found["10"], found["count"]) == (fast, fast + 10, fast + 10)
    assert found["sum"] == pytest.approx(fast * 0.5 + 10 * 7)


def sums(metrics: Registry, part: str) -> dict[str, float]:
    """Of one part: sum by API, as far as there are requests."""
    histogram = metrics.histogram(f"kafka_network_RequestMetrics_{part}", "", ("request",))
    return {row.labels[0]: row.value for row in histogram.rows() if row and row.suffix == "_sum"}


async def test_a_connection_times_its_requests_from_their_last_byte_on() -> None:
    """A produce waits for others; the change behind it waits before it is begun."""
    served = Served()
    gate = served.gate("waits")
    async with world(served) as harness:
        client = await harness.connect()
        client.send(produce("waits") + change("behind"))
        await until(lambda: served.begun == ["waits"])
        harness.advance(7)
        gate.set()
        for _ in range(2):
            await client.answer()
        for part, times in {
            "TotalTimeMs": (7, 7),
            "RequestQueueTimeMs": (0, 7),
            "LocalTimeMs": (0, 0),
            "RemoteTimeMs": (7, 0),
        }.items():
            found = sums(harness.metrics, part)
            assert (found["Produce"], found["FindCoordinator"]) == times, part


async def test_a_request_that_its_client_gives_up_is_timed_until_then() -> None:
    """In an outage these are the slow ones."""
    served = Served()
    served.gate("waits")
    async with world(served) as harness:
        client = await harness.connect()
        client.send(change("waits"))
        await until(lambda: served.begun == ["waits"])
        harness.advance(7)
        (connection,) = harness.server._connections
        connection.close("the test ends it")
        await until(lambda: sums(harness.metrics, "TotalTimeMs") == {"FindCoordinator": 7})


async def test_a_request_without_an_answer_is_timed_too() -> None:
    def nothing(_context: RequestContext, _body: bytes) -> None:
        harness.advance(3)

    async with serving(nothing) as harness:
        client = await harness.connect()
        client.send(frame(b""))
        await until(lambda: sums(harness.metrics, "TotalTimeMs") != {})
        assert set(sums(harness.metrics, "TotalTimeMs").values()) == {3}
