"""What a process stands on, as one value.

Everything that is not the same at every run comes in through here: time, threads, files,
randomness. A process is given the machine's (`system_ports`), a simulation the ones of
`tests.support.sim.ports`; nothing between knows which.
"""

import asyncio
from dataclasses import dataclass, field

from runtime.clock import Clock, SystemClock
from runtime.dice import Dice, SystemDice
from runtime.disk import Disk
from runtime.executors import Executors, ThreadPools
from runtime.isolation import Isolation
from runtime.metrics import Registry
from runtime.scheduler import LoopScheduler, Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What a process stands on.

    Attributes:
        clock: what time it is.
        scheduler: calls on the process's event loop, later and again.
        executors: pools of threads beside the loop.
        disk: files.
        dice: randomness.
        metrics: everything that is counted in the process.
        isolation: whether its connections to other processes are cut.
    """

    clock: Clock
    scheduler: Scheduler
    executors: Executors
    disk: Disk
    dice: Dice
    metrics: Registry = field(default_factory=Registry)
    isolation: Isolation = field(default_factory=Isolation)


def system_ports(loop: asyncio.AbstractEventLoop) -> Ports:
    """Make the machine's own, for the process whose event loop this is."""
    return Ports(
        clock=SystemClock(),
        scheduler=LoopScheduler(loop),
        executors=ThreadPools(),
        disk=Disk(),
        dice=SystemDice(),
    )
