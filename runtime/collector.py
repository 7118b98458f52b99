"""Short passes of the garbage collector, for short pauses of all threads.

A full pass visits every object, and no thread runs meanwhile. It takes a third of a millisecond for
a thousand objects, twice that on a busy machine. A partition has 80 of them, so with 5,000
partitions a pass takes 150 to 300 ms, and Python starts one after each growth by a quarter.

So long-lived objects are not visited again (`short_full_passes`). Full passes come after some
20,000 new objects; if more than `STAYED_MAX` are left after one, they are frozen. Their reference
counts free them as usual. Only garbage in a cycle is no longer freed, with all that it holds. That
is the price, and it is kept low:

* Where few objects are long-lived, only those of the start are frozen: connections and requests are
  collected as in any program.
* Long-lived objects are in no cycle when they end: partitions and their logs (closing a log cuts
  two), connections, the tier's state of a partition. Tests check some of them.
* Work that is under way at a freeze is mostly in no cycle when it ends. A usual mistake is a
  callback of a future that names this future. The future keeps its callbacks after it is done, so
  both stay; the callback gets the future as its argument and need not name it.

Nothing is ever unfrozen: the pass after that would be the long one that is to be avoided.

Python counts allocations minus deallocations. Long work that frees as much as it allocates, such as
a record for each value made of it, triggers no pass at all, until one visits everything that it
made. That takes 120 ms for the records of 100,000 partitions. So each step of long work checks the
number of young objects (`collect_after_step`).

`resting_collector` holds back all passes for some seconds; the first pass after it visits all
objects made meanwhile. Not for the event loop.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from runtime.executors import make_mutex

_resting = 0
_are_short = False
_counting = make_mutex()

STAYED_MAX: Final = 10_000
"""Objects that may be left after a full pass without being frozen."""
MIDDLE_PASSES: Final = 2
"""More passes over the middle generation than that are followed by a full one; Python's own is 10.

Each brings at most 7,700 new objects.
"""

YOUNG_MAX: Final = 10_000
"""Young objects after which a step of long work is followed by a full pass."""


@contextmanager
def resting_collector() -> Iterator[None]:
    """Hold back the collector's passes until the block ends; blocks may overlap, on any threads.

    For work of some seconds that makes many objects without cycles, such as the records of a start.
    Cycles of other threads wait meanwhile.
    """
    global _resting
    with _counting:
        is_mine = bool(_resting) or gc.isenabled()  # else other code keeps it from running
        if is_mine:
            _resting += 1
            gc.disable()
    try:
        yield
    finally:
        if is_mine:
            with _counting:
                _resting -= 1
                if not _resting:
                    gc.enable()


@contextmanager
def short_full_passes() -> Iterator[None]:
    """Keep full passes short until the block ends; frozen objects stay frozen.

    Existing objects are frozen at once: a process begins with its modules.
    """
    global _are_short
    gc.freeze()
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, MIDDLE_PASSES)
    gc.callbacks.append(_freeze_what_stays)
    _are_short = True
    try:
        yield
    finally:
        _are_short = False
        gc.callbacks.remove(_freeze_what_stays)
        gc.set_threshold(young, middle, old)


def collect_after_step() -> None:
    """Make a full pass if a step of long work has left many young objects, and passes are short."""
    if _are_short and gc.isenabled() and len(gc.get_objects(generation=0)) > YOUNG_MAX:
        gc.collect()


def have_come_to_stay(left: int) -> bool:
    """Whether a full pass has left too many objects for the next one."""
    return left > STAYED_MAX


def _freeze_what_stays(phase: str, facts: dict[str, int]) -> None:
    is_full = phase == "stop" and facts["generation"] == 2
    if is_full and have_come_to_stay(len(gc.get_objects(generation=2))):
        gc.freeze()
