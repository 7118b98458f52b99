"""Runs a long computation on the event loop without holding it."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from runtime.collector import look_after_step

R = TypeVar("R")


async def run_in_steps(steps: Generator[None, None, R]) -> R:
    """Take the steps of a computation, with a turn of everything else on the loop after each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        look_after_step()
        await asyncio.sleep(0)


def result_or_rest(steps: Generator[None, None, R]) -> R | Coroutine[Any, Any, R]:
    """Take the first step now.

    Returns:
        The result, or the rest of the steps for `await`.
    """
    try:
        next(steps)
    except StopIteration as end:
        result: R = end.value
        return result
    return run_in_steps(steps)
