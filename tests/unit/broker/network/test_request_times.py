"""Times of requests: parts that add up, slow ones all counted, fast ones one in sixteen for all."""

import asyncio
from typing import Any

import pytest

from broker.network.dispatch import Sending
from broker.network.registry import RequestContext
from broker.network.request_times import FAST_COUNTED, RequestTimes
from broker.network.sender import Sender
from runtime.disk import Disk
from runtime.metrics import Registry
from tests.support.worlds.network import frame, serving
from tests.support.worlds.waiting import until
from tests.unit.broker.network.test_network_order import Served, change, produce, world

MS = 1_000_000
LARGE = bytes(64 * 1024 * 1024)
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
    fast = 1 + 99 // FAST_COUNTED * FAST_COUNTED
    assert (found["1"], found["10"], found["count"]) == (fast, fast + 10, fast + 10)
    assert found["sum"] == pytest.approx(fast * 0.5 + 10 * 7)


def test_the_first_fast_request_and_each_sixteenth_are_recorded_for_all() -> None:
    times = RequestTimes(Registry(), "Produce")
    assert times.answered(context(0, 0), 7 * MS) == 1
    stand_for = [times.answered(context(0, 0), MS // 2) for _ in range(33)]
    assert stand_for == [1, *[0] * 15, 16, *[0] * 15, 16]


def sending_of(times: RequestTimes, sizes: list[tuple[int, int, int]]) -> list[Sending]:
    return [(size, ready_ns, times, stands_for) for size, ready_ns, stands_for in sizes]


def test_an_answer_is_sent_when_its_last_byte_is_with_the_socket() -> None:
    """Of the second one half is left, and the third one waits behind it."""
    metrics = Registry()
    sender = sender_of(sending_of(RequestTimes(metrics, "Produce"), [(100, 0, 1)] * 3))
    sender.unsent_bytes = 150
    sender.note_sent(2 * MS)
    assert (values(metrics, "ResponseSendTimeMs")["sum"], len(sender.sending)) == (2, 2)
    sender.unsent_bytes = 100
    sender.note_sent(5 * MS)
    assert (values(metrics, "ResponseSendTimeMs")["sum"], len(sender.sending)) == (7, 1)
    sender.unsent_bytes = 0
    sender.note_sent(9 * MS)
    assert (values(metrics, "ResponseSendTimeMs")["sum"], len(sender.sending)) == (16, 0)


def test_slow_sends_count_for_themselves_and_fast_ones_as_their_requests() -> None:
    metrics = Registry()
    times = RequestTimes(metrics, "Produce")
    fast, slow = [(9, 9 * MS, 0), (9, 9 * MS, 16)], [(9, 0, 0), (9, 0, 16)]
    sender = sender_of(sending_of(times, fast + slow))
    sender.note_sent(9 * MS + MS // 2)
    found = values(metrics, "ResponseSendTimeMs")
    assert (found["1"], found["count"]) == (16, 18)
    assert found["sum"] == pytest.approx(16 * 0.5 + 2 * 9.5)


def sender_of(sending: list[Sending]) -> Sender:
    class NoSocket:
        def fileno(self) -> int:
            return -1

    sender = Sender(NoSocket(), Disk())  # type: ignore[arg-type]
    sender.sending = sending
    return sender


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


async def test_a_request_behind_a_slow_one_waits_in_the_queue() -> None:
    """The slow one ends the turn, and the next request begins with the next time slice."""

    def slow(_context: RequestContext, _body: bytes) -> list[object]:
        harness.advance(3)
        return [b"x"]

    async with serving(slow) as harness:
        client = await harness.connect()
        client.send(frame(b"") + frame(b""))
        await client.answer()
        await client.answer()
        harness.advance(50)
        client.send(frame(b""))
        await client.answer()
        assert sums(harness.metrics, "RequestQueueTimeMs") == {"Metadata": 3}
        assert sums(harness.metrics, "LocalTimeMs") == {"Metadata": 9}


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
        await until(lambda: sums(harness.metrics, "TotalTimeMs") == {"Metadata": 3})
        assert sums(harness.metrics, "ResponseSendTimeMs") == {"Metadata": 0}


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_answer_that_its_client_does_not_read_is_being_sent(is_late: bool) -> None:
    """What the socket takes of it is not enough, nor is that the sending began."""
    ready = asyncio.Event()

    async def later() -> list[object]:
        await ready.wait()
        return [LARGE]

    def large(_context: RequestContext, _body: bytes) -> Any:
        return later() if is_late else [LARGE]

    async with serving(large) as harness:
        client = await harness.connect()
        client.writer.transport.pause_reading()
        client.send(frame(b""))
        ready.set()
        (connection,) = harness.server._connections
        sender = connection._sender
        await until(lambda: bool(sender.unsent_bytes) and not sender.slice_is_over)
        harness.advance(7)
        assert sums(harness.metrics, "ResponseSendTimeMs") == {"Metadata": 0}
        client.writer.transport.resume_reading()
        await client.answer()
        await until(lambda: sums(harness.metrics, "ResponseSendTimeMs") == {"Metadata": 7})
        assert sums(harness.metrics, "TotalTimeMs") == {"Metadata": 0}
