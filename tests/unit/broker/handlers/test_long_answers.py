"""Answers in turns: their future ends however the work does."""

import asyncio
from typing import Any

import pytest

from broker.handlers.long_answers import Answering, answer_or_future, awaited, until_all_done
from runtime.work import Until
from tests.support.worlds.pools import turns


async def test_an_answer_is_cancelled_with_what_it_waits_for() -> None:
    inner = asyncio.get_running_loop().create_future()
    order: list[str] = []

    def work() -> Answering[int]:
        try:
            yield from awaited(inner)
        finally:
            order.append("end")
        return 8

    answer = answer_or_future(work())
    assert isinstance(answer, asyncio.Future)
    inner.cancel()
    await turns(5)
    assert answer.cancelled()
    assert order == ["end"]


def timers_of(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.TimerHandle]:
    """The timers that the loop is given from now on."""
    loop, made = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    call_later = loop.call_later

    def noted(delay_s: float, fn: Any, *args: Any) -> asyncio.TimerHandle:
        made.append(call_later(delay_s, fn, *args))
        return made[-1]

    monkeypatch.setattr(loop, "call_later", noted)
    return made


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_wait_for_all_ends_with_the_last_and_leaves_no_timer(
    monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    """Each request begins one: left to its time they would be those of half a minute."""
    timers = timers_of(monkeypatch)
    first, last = (asyncio.get_running_loop().create_future() for _ in range(2))
    answer = answer_or_future(until_all_done([first, last], timeout_s=600))
    assert isinstance(answer, asyncio.Future)
    first.set_result(None)
    await turns(5)
    assert not answer.done()
    if is_cancelled:
        answer.cancel()
    last.set_result(None)
    await turns(5)
    assert answer.cancelled() if is_cancelled else answer.done()
    assert [one.cancelled() for one in timers] == [True]


async def test_what_is_done_after_the_time_of_a_wait_resumes_nothing() -> None:
    late = asyncio.get_running_loop().create_future()
    order: list[str] = []

    def work() -> Answering[None]:
        yield from until_all_done([late], timeout_s=0)
        order.append("time is over")
        yield Until(lambda _continue: None)
        order.append("resumed")

    answer = answer_or_future(work())
    assert isinstance(answer, asyncio.Future)
    await turns(5)
    assert order == ["time is over"]
    late.set_result(None)
    await turns(5)
    assert order == ["time is over"]
    answer.cancel()
