"""What a process stands on, as one value.

Everything that is not the same at every run comes in through here: time, threads, files,
randomness. A process is given the machine's (`system_ports`), a simulation the ones of
`tests.support.sim.ports`; nothing between knows which.
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

    The connections that it opens go through here, and those that its listeners accept: it is cut
    off at once and as a whole, whatever the others do.

    Attributes:
        is_cut: it opens no connection to another process, and listeners accept none.
    """

    def __init__(self) -> None:
        self.is_cut = False
        self._kept: frozenset[str] = frozenset()
        self._ends: dict[object, Callable[[], None]] = {}

    def cut(self, kept: frozenset[str] = frozenset()) -> None:
        """End all connections but those of the listeners `kept`, and let no new one begin."""
        self.is_cut, self._kept = True, kept
        for end in list(self._ends.values()):
            end()

    def heal(self) -> None:
        """Let connections begin again."""
        self.is_cut = False

    def admits(self, listener_name: str) -> bool:
        """Whether a listener may have connections."""
        return not self.is_cut or listener_name in self._kept

    def add(self, holder: object, end: Callable[[], None]) -> None:
        """Have `end` called at each cut; it ends what `holder` may not have then."""
        self._ends[holder] = end

    def discard(self, holder: object) -> None:
        """Forget what `add` was told; fine where it was told nothing."""
        self._ends.pop(holder, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What a process stands on.

    Attributes:
        clock: what time it is.
        scheduler: calls on the process's event loop, later and again.
        executors: pools of threads beside the loop.
        disk: files.
        rng: randomness.
        metrics: everything that is counted in the process.
        isolation: whether its connections to other processes are cut.
    """

    clock: Clock
    scheduler: Scheduler
    executors: Executors
    disk: Disk
    rng: Rng
    metrics: Registry = field(default_factory=Registry)
    isolation: Isolation = field(default_factory=Isolation)


def system_ports(loop: asyncio.AbstractEventLoop) -> Ports:
    """Make the machine's own, for the process whose event loop this is."""
    return Ports(
        clock=SystemClock(),
        scheduler=LoopScheduler(loop),
        executors=ThreadPools(),
        disk=Disk(),
        rng=SystemRng(),
    )
