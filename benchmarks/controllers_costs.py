"""CPU and memory of the processes of a quorum, and how far each one is."""

import asyncio
import time
from typing import Final

import psutil

from tests.support.quorum.controllers import Controller
from tests.support.quorum.quorum import Quorum

_POLL_S: Final = 0.5
_IDLE: Final = 0.15
"""Share of a core."""


class Costs:
    """CPU seconds of each controller since this was made."""

    def __init__(self, quorum: Quorum) -> None:
        running = [one for one in quorum.controllers.values() if one.is_running]
        self._processes = {one.node_id: psutil.Process(one.pid) for one in running}
        self._before = {one: self._now(one) for one in self._processes}
        self._began = time.monotonic()

    def _now(self, node_id: int) -> float:
        times = self._processes[node_id].cpu_times()
        return float(times.user + times.system)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def cpu_s(self) -> float:
        """Of all of them."""
        return sum(self.cpu_s_of(one) for one in self._processes)

    def cpu_s_of(self, node_id: int) -> float:
        return self._now(node_id) - self._before[node_id]

    def rss_mb(self, node_id: int) -> float:
        """Resident memory in MB of 10^6 bytes."""
        return float(self._processes[node_id].memory_info().rss) / 1e6


async def behind(quorum: Quorum, node_id: int) -> None:
    """Return when the leader has committed more than it knows of a stopped controller."""
    while True:
        leader = await quorum.leader()
        if leader.high_watermark > max(leader.ends.get(node_id, -1), 0):
            return
        await asyncio.sleep(0.05)


async def caught_up(quorum: Quorum, node_id: int, deadline_s: float = 120) -> None:
    """Return when a controller has everything that is committed, as the leader sees it."""
    async with asyncio.timeout(deadline_s):
        while True:
            leader = await quorum.leader()
            if leader.ends.get(node_id, -1) >= leader.high_watermark:
                return
            await asyncio.sleep(0.01)


async def idle_again(controller: Controller, deadline_s: float = 120) -> float:
    """Wait until a controller is idle; return the `perf_counter` at which that began.

    A controller still loads records after it has fetched them. No answer shows the end of that, so
    its CPU is watched.
    """
    process = psutil.Process(controller.pid)
    async with asyncio.timeout(deadline_s):
        while True:
            began, before = time.perf_counter(), process.cpu_times()
            await asyncio.sleep(_POLL_S)
            now = process.cpu_times()
            spent_s = now.user + now.system - before.user - before.system
            if spent_s / (time.perf_counter() - began) < _IDLE:
                return began
