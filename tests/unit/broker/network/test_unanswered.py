"""What of a connection's requests is left when one of them fails; no sockets."""

import asyncio

import pytest

from broker.network.dispatch import Answer, OrderedFuture
from broker.network.registry import CloseConnection
from broker.network.request_times import RequestTimes
from broker.network.unanswered import Unanswered
from runtime.metrics import Registry

ANSWER: Answer = ([b"1234567"], 7, (7, 0, RequestTimes(Registry(), "Produce"), 0))


@pytest.mark.parametrize("is_answered", [False, True])
async def test_those_behind_one_that_fails_are_gone(is_answered: bool) -> None:
    loop = asyncio.get_running_loop()
    unanswered = Unanswered()
    first, failing = loop.create_future(), loop.create_future()
    behind = OrderedFuture(loop)
    behind.work = loop.create_future()
    slots = [unanswered.wait_for(one) for one in (first, failing)]
    unanswered.keep(ANSWER)
    slots.append(unanswered.wait_for(behind))
    assert unanswered.behind is behind.work
    if is_answered:  # in the same iteration of the loop: this is heard of later
        behind.set_result(ANSWER)
    failing.set_exception(CloseConnection("as the test wants it"))
    assert unanswered.settle(slots[1], failing) == "as the test wants it"
    assert list(unanswered.slots) == slots[:1]
    assert unanswered.kept_bytes == 0
    assert behind.cancelled() is not is_answered
    assert unanswered.behind is behind.work, "its bytes may still be in use"
    if is_answered:
        assert unanswered.settle(slots[2], behind) is None
    assert list(unanswered.slots) == slots[:1]
    assert unanswered.kept_bytes == 0
    first.set_result(ANSWER)
    assert unanswered.settle(slots[0], first) is None
    assert unanswered.kept_bytes == ANSWER[1]


async def test_one_that_fails_after_an_earlier_one_is_not_heard_of() -> None:
    loop = asyncio.get_running_loop()
    unanswered = Unanswered()
    futures: list[asyncio.Future[Answer | None]] = [loop.create_future() for _ in range(3)]
    slots = [unanswered.wait_for(one) for one in futures]
    for number, one in enumerate(futures):
        one.set_exception(CloseConnection(str(number)))
    assert unanswered.settle(slots[1], futures[1]) == "1"
    assert unanswered.settle(slots[2], futures[2]) is None
    assert unanswered.settle(slots[0], futures[0]) == "0"
    assert not unanswered.slots
