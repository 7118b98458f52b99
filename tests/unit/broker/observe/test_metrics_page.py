"""A scrape: our values and the tier's, on time whatever the tier does, between other work."""

import asyncio
from concurrent.futures import Future

import pytest

from broker.observe.metrics import MetricsPage
from broker.remote import tier_metrics
from broker.remote.tier_metrics import TierMetrics
from rlm.link.endpoint import Endpoint, FakeLink, Received
from rlm.link.messages import DescribeMetrics
from rlm.telemetry import MetricsPages
from runtime.metrics import Registry
from tests.support.sim.clock import ManualClock

AGE = "tidemark_remote_metrics_age_ms"


class Scrape:
    """A broker and its tier on a link that delivers one message an iteration of the loop."""

    def __init__(self, tier_values: int = 3) -> None:
        self.clock, self.broker, self.tier = ManualClock(), Registry(), Registry()
        self.broker.counter("own_total", "h").inc(1)
        self.copied = self.tier.counter("copied_total", "h", ["topic"])
        for number in range(tier_values):
            self.copied.inc(1, f"t{number}")
        self.asked = 0
        self.is_slow = False
        self.metrics = MetricsPage(self.broker)
        loop = asyncio.get_running_loop()
        self.metrics.others.append(TierMetrics(self, self.clock, loop, self.broker))
        self.start()

    def start(self) -> None:
        pages = MetricsPages(self.tier)

        def take(received: Received, reply: object) -> None:
            assert isinstance(received.message, DescribeMetrics)
            reply(pages.piece(received.message))  # type: ignore[operator]

        self.endpoint = Endpoint(lambda received, reply: None, lambda: None)
        self.link = FakeLink(self.endpoint, Endpoint(take, lambda: None))

    def ask(self, message: DescribeMetrics) -> "Future[Received]":
        self.asked += 1
        if not self.is_slow:
            self.deliver()
        return self.endpoint.ask(message)

    def deliver(self) -> None:
        asyncio.get_running_loop().call_soon(self.link.pump, 2)

    async def lines(self) -> list[str]:
        answer = await self.metrics.answer()
        return b"".join([answer.body, *answer.more]).decode().splitlines()


async def test_the_tiers_values_follow_ours() -> None:
    lines = await Scrape().lines()
    assert {"own_total 1", 'copied_total{topic="t0"} 1', f"{AGE} 0"} <= set(lines)
    assert lines.index("own_total 1") < lines.index('copied_total{topic="t0"} 1')


async def test_no_message_carries_more_than_a_piece() -> None:
    scrape = Scrape(tier_values=5_000)
    lines = await scrape.lines()
    assert sum(line.startswith("copied_total{") for line in lines) == 5_000
    assert scrape.asked >= 10


async def test_the_loop_turns_while_a_page_is_made() -> None:
    scrape, turns = Scrape(), 0
    gauge = scrape.broker.gauge("many", "h", ["n"])
    for number in range(10_000):
        gauge.set(1, str(number))
    answering = asyncio.create_task(scrape.lines())
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 20


async def test_a_late_tier_shows_its_last_page_and_its_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tier_metrics, "WAIT_MS", 20)
    scrape = Scrape()
    await scrape.lines()
    scrape.is_slow = True
    scrape.clock.advance(5_000)
    scrape.copied.inc(1, "t0")
    assert {'copied_total{topic="t0"} 1', f"{AGE} 5000"} <= set(await scrape.lines())
    assert {'copied_total{topic="t0"} 1', f"{AGE} 5000"} <= set(await scrape.lines())
    assert scrape.asked == 2 + 1  # the one that is late continues, no other is begun
    scrape.is_slow = False
    scrape.deliver()
    scrape.clock.advance(1_000)
    assert {'copied_total{topic="t0"} 2', f"{AGE} 1000"} <= set(await scrape.lines())


async def test_a_tier_that_ends_leaves_its_last_page_until_the_next_has_one() -> None:
    scrape = Scrape()
    await scrape.lines()
    scrape.clock.advance(700)
    scrape.link.cut()
    assert {'copied_total{topic="t0"} 1', f"{AGE} 700"} <= set(await scrape.lines())
    scrape.tier = Registry()
    scrape.tier.counter("copied_total", "h", ["topic"]).inc(9, "t9")
    scrape.start()
    lines = await scrape.lines()
    assert {'copied_total{topic="t9"} 9', f"{AGE} 0"} <= set(lines)
    assert 'copied_total{topic="t0"} 1' not in lines


async def test_a_tier_that_ends_amid_a_page_leaves_no_half_of_it() -> None:
    scrape = Scrape(tier_values=2_000)
    scrape.is_slow = True
    answering = asyncio.create_task(scrape.lines())
    while scrape.asked < 3:
        scrape.link.pump(2)
        await asyncio.sleep(0)
    scrape.link.cut()
    lines = await answering
    assert not [line for line in lines if line.startswith(("copied_total", AGE))]


async def test_scrapes_that_come_while_a_page_is_made_share_it() -> None:
    scrape = Scrape()
    whole = scrape.metrics.answer
    first, second, third = (asyncio.create_task(whole()) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()  # this one leaves, the others do not notice
    assert await second is await third
    assert first.cancelled()
    asked = scrape.asked
    await scrape.lines()
    assert scrape.asked == 2 * asked
