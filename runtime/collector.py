"""The garbage collector holds nobody up for long.

A full pass looks at every object that lives, and no thread runs meanwhile: a third of a millisecond
for a thousand objects, twice that on a busy machine. A partition has 80 of them, so with 5,000
partitions a pass takes 150 to 300 ms, and Python makes one whenever a quarter more has come.

So nothing that has come to stay is looked at for ever (`short_full_passes`). Full passes come after
some 20,000 new objects; when more than `STAYED_MAX` objects are left after one, they are frozen: no
pass looks at them again. Those that go are freed by their reference counts, frozen or not. What is
frozen and goes in a cycle is never freed. That is the price, and it is kept low:

* Whatever is young and in a cycle is freed as before: it has met three passes before any freeze.
* Where not much has come to stay there is no freeze, so a broker whose connections come and go is
  collected as any program is.
* What lives long and may go is in no cycle when it goes: partitions and their logs (closing a log
  cuts them), connections, sessions. Keep it so; tests look at it.

What is frozen is not looked at now and then: that is the one long pass that is to be avoided, and
it would find almost nothing.

`resting_collector` holds back all passes, for a few seconds.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from runtime.executors import make_mutex

_resting = 0
_counting = make_mutex()

STAYED_MAX: Final = 10_000
"""Objects that may be left after a full pass and are looked at again by the next."""
MIDDLE_PASSES: Final = 2
"""More passes over the middle generation than that are followed by a full one; Python's own is 10.

Each brings at most 7,700 new objects.
"""


@contextmanager
def resting_collector() -> Iterator[None]:
    """Hold back the collector's passes until the block ends; blocks may overlap, on any threads.

    For work that ends by itself after some seconds, and makes much that is in no cycle: the records
    of a decision, say. Cycles that others leave meanwhile wait.
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
    """Keep full passes short until the block ends; what is frozen by then stays so."""
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, MIDDLE_PASSES)
    gc.callbacks.append(_freeze_what_stays)
    try:
        yield
    finally:
        gc.callbacks.remove(_freeze_what_stays)
        gc.set_threshold(young, middle, old)


def have_come_to_stay(left: int) -> bool:
    """Whether so many objects that a full pass has left are too many for the next."""
    return left > STAYED_MAX


def _freeze_what_stays(phase: str, facts: dict[str, int]) -> None:
    is_full = phase == "stop" and facts["generation"] == 2
    if is_full and have_come_to_stay(len(gc.get_objects(generation=2))):
        gc.freeze()
