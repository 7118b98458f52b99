"""The garbage collector rests while much is made that is in no cycle.

A full pass looks at everything that lives, and holds the event loop meanwhile: 100 ms and more with
the records of a decision over 100,000 partitions. These go by their reference counts.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from runtime.executors import make_mutex

_resting = 0
_counting = make_mutex()
_NEVER: Final = 2**30


@contextmanager
def resting_collector() -> Iterator[None]:
    """Hold back the collector's passes until the block ends; blocks may overlap, on any threads.

    For work that ends by itself after some seconds: cycles that others leave meanwhile wait.
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


class FullPasses:
    """The collector's passes over everything: held back while much is made that stays.

    A pass over what a start or a takeover of 5,000 partitions makes holds the loop for 200 ms and
    is repeated at each quarter more. Passes over what is young go on.
    """

    def __init__(self) -> None:
        self._usual = gc.get_threshold()
        self._is_settled = False

    @property
    def are_held_back(self) -> bool:
        """Whether they are now."""
        return gc.get_threshold()[2] == _NEVER

    def hold_back(self) -> None:
        """Make none from now on."""
        young, middle, _ = self._usual
        gc.set_threshold(young, middle, _NEVER)

    def allow(self) -> None:
        """Make them again."""
        gc.set_threshold(*self._usual)

    def leave_out_what_lives(self) -> None:
        """What lives now is never looked at again; only the first call does something.

        Of what was left out no cycle is ever freed: right for what a start makes, once.
        """
        if not self._is_settled:
            self._is_settled = True
            gc.collect(1)
            gc.freeze()
