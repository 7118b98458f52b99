"""Waiting by the scheduler's clock, which tests move."""

import asyncio

from runtime.scheduler import Scheduler


async def pause(scheduler: Scheduler, delay_ms: int) -> None:
    """Wait by the scheduler's clock."""
    over = asyncio.get_running_loop().create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    timer = scheduler.call_later(delay_ms, end)
    try:
        await over
    finally:
        timer.cancel()
