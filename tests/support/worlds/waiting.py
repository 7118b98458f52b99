"""Waiting for a condition: where a test that is a coroutine function lets time pass."""

import asyncio
from collections.abc import Callable

PATIENCE_S = 20


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop work until the condition holds; fail when that takes too long."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - conditions are of many kinds
            await asyncio.sleep(0.001)
