"""A fetch of very many partitions: each look, each wait and the answer take turns of the loop."""

import asyncio
from collections.abc import Sequence

from broker.handlers.fetch_read import read_in_slices
from broker.purgatory.wide_wait import WideWait
from broker.replica.fetch_looks import FetchLooks
from broker.replica.fetch_types import FetchParams, FetchPartition, FetchPass
from broker.replica.manager import ReplicaManager
from runtime.scheduler import Scheduler


def missing_bytes(params: FetchParams, looks: FetchLooks, result: FetchPass) -> int:
    """How many bytes must still come before the answer is due; 0 or less: answer now."""
    if params.max_wait_ms <= 0 or result.must_answer or not looks.context.count:
        return 0
    return params.min_bytes - result.size_bytes


async def look_in_slices(
    replicas: ReplicaManager,
    params: FetchParams,
    looks: FetchLooks,
    due: Sequence[FetchPartition],
    *,
    may_wait: bool,
) -> FetchPass:
    """Look at partitions in slices; what happens to those that were looked at is noted."""
    result, taken = FetchPass(may_wait=may_wait), 0
    for _ in read_in_slices(replicas, params, due, result):
        looks.take(result.reads[taken:], watches=True)
        taken = len(result.reads)
        await asyncio.sleep(0)
    looks.take(result.reads[taken:], watches=True)
    return result


async def wait_in_slices(
    replicas: ReplicaManager,
    params: FetchParams,
    looks: FetchLooks,
    *,
    wait_ms: int,
    scheduler: Scheduler,
    missing: int = 0,
    due: Sequence[FetchPartition] = (),
) -> FetchPass:
    """Wait for bytes on every partition of the fetch.

    Args:
        replicas: what is hosted here.
        params: of the fetch.
        looks: its looks so far.
        wait_ms: after so long it looks for the last time.
        scheduler: for the end of the wait.
        missing: how many bytes must come.
        due: what is to be looked at before anything is waited for.

    Returns:
        The look after which the answer is due.
    """
    looks.park()
    wait = WideWait(watch=looks.context.watch, wait_ms=wait_ms, scheduler=scheduler)
    try:
        while True:
            if not due:
                await wait.until_due(missing)
                due = looks.due()
            is_last = wait.is_over
            result = await look_in_slices(replicas, params, looks, due, may_wait=True)
            missing = missing_bytes(params, looks, result)
            # An offset that went remote while it was parked is served by the client's next fetch.
            if missing <= 0 or is_last or result.remote:
                return result
            due = ()
    finally:
        wait.finish()
