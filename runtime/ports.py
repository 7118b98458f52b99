"""The ports of a process, as one value.

All input that differs between runs comes through these: time, threads, files, randomness. A process
gets the machine's (`system_ports`), a simulation those of `tests.support.sim.ports`. No code
between depends on the difference.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.clock import Clock, SystemClock
from runtime.disk import Disk
from runtime.executors import Executors, ThreadPools
from runtime.metrics import Registry
from runtime.rng import Rng, SystemRng
from runtime.scheduler import LoopScheduler, Scheduler


class Isolation:
    """Whether this process is cut off from others, for tests; for the event loop's thread only.

    All connections are registered here, those that the process opens and those that its listeners
    accept. So it is cut off at once and as a whole, independent of the other processes.

    Attributes:
        is_cut: The process opens no connection to another process, and its listeners accept none.
    """

    def __init__(self) -> None:
        self.is_cut = False
        self._kept: frozenset[str] = frozenset()
        self._ends: dict[object, Callable[[], None]] = {}

    def cut(self, kept: frozenset[str] = frozenset()) -> None:
        """End all connections except those of the listeners `kept`, and permit no new ones."""
        self.is_cut, self._kept = True, kept
        for end in list(self._ends.values()):
            end()

    def heal(self) -> None:
        """Permit connections again."""
        self.is_cut = False

    def admits(self, listener_name: str) -> bool:
        """Whether a listener may have connections."""
        return not self.is_cut or listener_name in self._kept

    def add(self, holder: object, end: Callable[[], None]) -> None:
        """Call `end` at each cut; it must end the forbidden connections of `holder`."""
        self._ends[holder] = end

    def discard(self, holder: object) -> None:
        """Remove what `add` registered, if anything."""
        self._ends.pop(holder, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of a process.

    Attributes:
        clock: The time.
        scheduler: Calls on the process's event loop, later and repeated.
        executors: Pools of threads beside the loop.
        disk: Files.
        rng: Randomness.
        metrics: All metrics of the process.
        isolation: Whether its connections to other processes are cut.
    """

    clock: Clock
    scheduler: Scheduler
    executors: Executors
    disk: Disk
    rng: Rng
    metrics: Registry = field(default_factory=Registry)
    isolation: Isolation = field(default_factory=Isolation)


def system_ports(loop: asyncio.AbstractEventLoop) -> Ports:
    """The machine's ports, for the process with this event loop."""
    return Ports(
        clock=SystemClock(),
        scheduler=LoopScheduler(loop),
        executors=ThreadPools(),
        disk=Disk(),
        rng=SystemRng(),
    )
