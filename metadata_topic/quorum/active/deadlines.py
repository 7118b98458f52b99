"""Callers wait for the metadata log only so long; what they wait for goes on without them."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from kafka_protocol.errors import ErrorCode, KafkaError
from runtime.scheduler import Scheduler

DECISION_TIMEOUT_MS: Final = 30_000
"""How long a caller waits that does not say: Kafka's `request.timeout.ms`."""


class DecisionTimedOut(KafkaError):
    """A decision was not durable in time. It may still be carried out if it had begun."""

    code = ErrorCode.REQUEST_TIMED_OUT


async def wait_for_all(
    tasks: Iterable["asyncio.Task[Any]"], timeout_ms: int, scheduler: Scheduler
) -> None:
    """Wait until all tasks are done or the time is over; cancels none of them, raises nothing.

    Args:
        tasks: what to wait for.
        timeout_ms: how long, by the scheduler's clock.
        scheduler: ends the waiting.
    """
    everything = asyncio.ensure_future(asyncio.wait(set(tasks)))
    late = asyncio.get_running_loop().create_future()
    timer = scheduler.call_later(timeout_ms, late.cancel)
    try:
        await asyncio.wait({everything, late}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        everything.cancel()
        late.cancel()
        timer.cancel()
