"""What health says of a disk that fills, with and without a tier that is unhealthy."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.observe.disk_forecast import LONG_SPAN_MIN_MS
from broker.observe.health import Health
from broker.process.broker_logs import watch_disks
from runtime.disk import Disk
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated


class FillingDisk(Disk):
    """100 MB/s are written to it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def free_bytes(self, path: Path) -> int:
        return 10**12 - 10**5 * self._clock.monotonic_ms()


@pytest.mark.parametrize(
    ("reasons", "status", "remedy"),
    [
        (None, "yellow", "retention.ms"),
        ((), "yellow", "retention.ms"),
        (("copy: no",), "red", "Remedy: repair what else is unhealthy"),
    ],
)
async def test_a_disk_that_fills_is_yellow_and_unhealthy_while_nothing_expires(
    reasons: tuple[str, ...] | None, status: str, remedy: str
) -> None:
    clock, health = ManualClock(monotonic_ms=1), Health(1)
    ports = simulated(clock=clock, disk=FillingDisk(clock))
    logs: Any = SimpleNamespace(online_dirs=lambda: [SimpleNamespace(path=Path("/a"))])
    tier: Any = SimpleNamespace(state=lambda: SimpleNamespace(reasons=reasons))
    task = watch_disks(logs, None if reasons is None else tier, health, ports)
    task.run()
    assert health.report()["status"] == "green"
    clock.advance(LONG_SPAN_MIN_MS)
    task.run()
    report = health.report()
    [reason] = report["reasons"]  # type: ignore[misc]
    assert report["parts"] == {"disk": status}
    assert reason.startswith("disk: the disk of /a is full in 2.6 h")
    assert remedy in reason + str(report["remedies"])
    metrics = {one.name: one.value for one in ports.metrics.samples()}
    assert metrics["tidemark_log_dir_hours_until_full"] == pytest.approx(2.6, abs=0.1)
