"""A process's ports, all simulated: one seed replays the process.

ports = simulated(seed=7)
part = Part(config, ports)
ports.scheduler.advance(60_000)    # moves the clock and runs what is due
with_faults = replace(ports, disk=FaultyDisk())
"""

from dataclasses import dataclass, field

from runtime.disk import Disk
from runtime.executors import Pool
from runtime.metrics import Registry
from runtime.ports import Ports
from tests.support.sim.clock import ManualClock
from tests.support.sim.executors import SimExecutors
from tests.support.sim.rng import SeededRng
from tests.support.sim.scheduler import ManualScheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class SimPorts(Ports):
    """Ports that a test moves: nothing happens by itself, and time stands still."""

    clock: ManualClock
    scheduler: ManualScheduler
    executors: SimExecutors
    disk: Disk
    rng: SeededRng
    metrics: Registry = field(default_factory=Registry)


def simulated(
    seed: int = 1,
    *,
    clock: ManualClock | None = None,
    disk: Disk | None = None,
    pool: Pool | None = None,
    changes: Pool | None = None,
    reads: Pool | None = None,
    background: Pool | None = None,
) -> SimPorts:
    """Make the ports of a simulated process.

    Args:
        seed: of its rng.
        clock: where time begins, or time that it shares with others; default: a new clock.
        disk: default: real files without faults.
        pool: runs what goes to any pool; default: at once, in the caller's thread.
        changes: runs what goes to the pool of that name; default: `pool`.
        reads: the same of that name.
        background: the same of that name.
    """
    clock = clock or ManualClock()
    return SimPorts(
        clock=clock,
        scheduler=ManualScheduler(clock),
        executors=SimExecutors(pool, changes=changes, reads=reads, background=background),
        disk=disk or Disk(),
        rng=SeededRng(seed),
    )
