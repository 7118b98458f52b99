"""Answers in turns: their future ends however the work does."""

import asyncio

from broker.handlers.long_answers import Answering, answer_or_future, awaited
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
