"""A broker sees its own registration: fenced it comes back, replaced it ends."""

import asyncio
from dataclasses import replace

import pytest

from broker.node.membership import (
    RED_AFTER_MS,
    RETRY_MS,
    Membership,
    MembershipPorts,
    MembershipWatch,
    membership,
)
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.model import BrokerImage
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler

ME, MINE, THEIRS = 1, b"i" * 16, b"o" * 16
SERVES = BrokerImage(ME, 5, MINE, fenced=False)


def image(broker: BrokerImage | None) -> MetadataImage:
    return replace(EMPTY_IMAGE, brokers={} if broker is None else {ME: broker})


class Watched:
    """A watch in front of a controller of the test's own."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.asked: list[str] = []
        self.ends: list[str] = []
        self.waits_for: list[str] = []
        self.refuses = False
        self.answer: asyncio.Future[None] | None = None
        ports = MembershipPorts(
            register=lambda: self.ask("register"),
            unfence=lambda: self.asked.append("unfence"),
            waits_for=lambda: self.waits_for,
            on_end=lambda error: self.ends.append(str(error)),
            clock=self.clock,
            scheduler=self.scheduler,
        )
        self.watch = MembershipWatch(ME, MINE, ports)
        self.watch.begin(image(SERVES))

    async def ask(self, what: str) -> None:
        self.asked.append(what)
        if self.refuses:
            raise NotControllerError("no active controller is known")
        if self.answer is not None:
            await self.answer

    async def pass_ms(self, step_ms: int) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        self.scheduler.advance(step_ms)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("broker", "found"),
    [
        (SERVES, Membership.ACTIVE),
        (replace(SERVES, fenced=True), Membership.FENCED),
        (replace(SERVES, epoch=99), Membership.ACTIVE),
        (None, Membership.ABSENT),
        (replace(SERVES, incarnation_id=THEIRS), Membership.REPLACED),
        (replace(SERVES, incarnation_id=THEIRS, fenced=True), Membership.REPLACED),
    ],
)
def test_an_image_says_how_a_life_stands(broker: BrokerImage | None, found: Membership) -> None:
    assert membership(image(broker), ME, MINE) is found


async def test_a_fenced_broker_is_unfenced_until_it_serves() -> None:
    one = Watched()
    one.refuses = True
    one.watch.see(image(replace(SERVES, fenced=True)))
    await one.pass_ms(RETRY_MS)
    one.refuses = False
    await one.pass_ms(RETRY_MS)
    assert one.asked[:2] == ["unfence", "unfence"]
    one.watch.see(image(SERVES))
    await one.pass_ms(RETRY_MS)
    count = len(one.asked)
    await one.pass_ms(RETRY_MS)
    assert len(one.asked) == count
    one.watch.see(image(replace(SERVES, fenced=True)))
    await one.pass_ms(0)
    assert len(one.asked) == count + 1, "a second time, too"
    await one.watch.end()


async def test_a_broker_whose_registration_is_gone_registers_again() -> None:
    one = Watched()
    one.watch.see(image(None))
    await one.pass_ms(0)
    assert one.asked == ["register", "unfence"]
    await one.watch.end()
    assert one.ends == []


async def test_another_incarnation_ends_the_process_and_both_are_named() -> None:
    one = Watched()
    other = image(replace(SERVES, incarnation_id=THEIRS))
    one.watch.see(other)
    one.watch.see(other)
    (reason,) = one.ends
    assert uuid_to_text(MINE) in reason
    assert uuid_to_text(THEIRS) in reason
    await one.pass_ms(RETRY_MS)
    assert one.asked == []


async def test_a_broker_that_is_not_back_after_ten_seconds_is_unhealthy() -> None:
    one = Watched()
    one.refuses = True
    one.watch.see(image(replace(SERVES, fenced=True)))
    one.scheduler.advance(RED_AFTER_MS)
    assert one.watch.problems() == ()
    one.scheduler.advance(1)
    (reason,) = one.watch.problems()
    assert "fenced" in reason
    one.waits_for = ["no leader is known"]
    assert one.watch.problems() == (), "what the image says may be old"
    one.waits_for = []
    one.watch.see(image(SERVES))
    assert one.watch.problems() == ()
    one.watch.see(image(None))
    one.scheduler.advance(RED_AFTER_MS + 1)
    assert "not registered" in one.watch.problems()[0]
    await one.watch.end()
    assert one.watch.problems() == (), "it does not mean to serve"


async def test_images_that_come_meanwhile_do_not_put_off_the_unhealthy() -> None:
    one = Watched()
    one.refuses = True
    for _ in range(3):  # the metadata of others change all the time
        one.watch.see(image(replace(SERVES, fenced=True)))
        one.scheduler.advance(RED_AFTER_MS // 2)
    assert one.watch.problems() != ()
    await one.watch.end()


async def test_a_broker_that_stops_gives_up_what_it_asks_for() -> None:
    """Its registration would else be answered after it has left, and bring it back."""
    one = Watched()
    asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    one.answer = asked
    one.watch.see(image(None))
    await one.pass_ms(0)
    await one.watch.end()
    assert asked.cancelled()
    assert one.asked == ["register"]


async def test_a_broker_that_stops_does_not_come_back() -> None:
    one = Watched()
    await one.watch.end()
    one.watch.see(image(replace(SERVES, fenced=True)))
    one.watch.see(image(replace(SERVES, incarnation_id=THEIRS)))
    await one.pass_ms(RETRY_MS)
    assert (one.asked, one.ends) == ([], [])
