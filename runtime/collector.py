"""The garbage collector holds nobody up for long.

A full pass looks at every object that lives, and no thread runs meanwhile: a third of a millisecond
for a thousand objects, twice that on a busy machine. A partition has 80 of them, so with 5,000
partitions a pass takes 150 to 300 ms, and Python makes one whenever a quarter more has come.

So what has come to stay is not looked at again (`short_full_passes`). Full passes come after some
20,000 new objects; when more than `STAYED_MAX` are left after one, they are frozen. They are freed
by their reference counts as any object. Only what goes in a cycle is not freed any more, with all
that it holds. That is the price, and it is kept low:

* Where not much has come to stay nothing more is frozen than what a process begins with:
  connections and requests that come and go are collected as in any program.
* What lives long is in no cycle when it goes: partitions and their logs (closing a log cuts two),
  connections, what the tier knows of a partition. Tests look at some of it; keep it so.
* What is under way at a freeze is mostly in no cycle when it ends. A usual mistake: a callback of a
  future that names this future. The future keeps its callbacks after it is done, so both stay; the
  callback is given the future and need not name it.

Nothing is unfrozen now and then: the pass after that is the long one that is to be avoided.

Python counts what was made less what was freed. Long work that lets go of as much as it makes, of
a record for each value made of it, brings no pass at all, until one comes over everything that it
made: 120 ms for the records of 100,000 partitions. So each step of it looks how much is young
(`collect_after_step`).

`resting_collector` holds back all passes, for some seconds; what was made meanwhile is looked at in
the first pass after it, at once. Not for the event loop.
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
"""Objects that may be left after a full pass and are looked at again by the next."""
MIDDLE_PASSES: Final = 2
"""More passes over the middle generation than that are followed by a full one; Python's own is 10.

Each brings at most 7,700 new objects.
"""

YOUNG_MAX: Final = 10_000
"""Young objects after which a step of long work is followed by a full pass."""


@contextmanager
def resting_collector() -> Iterator[None]:
    """Hold back the collector's passes until the block ends; blocks may overlap, on any threads.

    For work that ends by itself after some seconds, and makes much that is in no cycle: the records
    of a start, say. Cycles that others leave meanwhile wait.
    """
    global _resting
    with _counting:
        is_mine = bool(_resting) or gc.isenabled()  # else somebody else keeps it from running
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
    """Keep full passes short until the block ends; what is frozen by then stays so.

    What lives already is frozen at once: a process begins with its modules.
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
    """Make a full pass if a step of long work has left much that is young, and passes are short."""
    if _are_short and gc.isenabled() and len(gc.get_objects(generation=0)) > YOUNG_MAX:
        gc.collect()


def have_come_to_stay(left: int) -> bool:
    """Whether so many objects that a full pass has left are too many for the next."""
    return left > STAYED_MAX


def _freeze_what_stays(phase: str, facts: dict[str, int]) -> None:
    is_full = phase == "stop" and facts["generation"] == 2
    if is_full and have_come_to_stay(len(gc.get_objects(generation=2))):
        gc.freeze()
