"""Periodic elections by the active controller.

Each round is a decision like any other: it goes through the same queue and is dropped with its
term. A decision makes a limited number of elections; if more may be needed the next one follows at
once.

Callback-based, on the loop's thread.
"""

import logging
from collections.abc import Callable
from functools import partial

from metadata_topic.controller.elections import balance_leaders, elect_unclean_leaders
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.active.controller_loop import ControllerLoop
from metadata_topic.quorum.active.decisions import Done, Outcome
from metadata_topic.quorum.active.ports import ControllerWorld
from runtime.scheduler import Timer
from runtime.work import Steps

log = logging.getLogger(__name__)

_Elect = Callable[[MetadataImage], Steps[ControllerResult[bool]]]


class ElectionTimers:
    """Timers of leader balance and of unclean elections."""

    def __init__(self, loop: ControllerLoop, world: ControllerWorld) -> None:
        """Register as a watcher of the controller's terms."""
        settings = world.settings
        defaults = settings.election_defaults
        self._loop, self._scheduler = loop, world.scheduler
        self._kinds: tuple[tuple[int, _Elect], ...] = (
            (
                settings.unclean_election_interval_ms,
                partial(elect_unclean_leaders.steps, defaults=defaults),
            ),
            (settings.rebalance_interval_ms, partial(balance_leaders.steps, defaults=defaults)),
        )
        self._timers: dict[int, Timer] = {}
        self._term = 0
        loop.watch(self)

    def on_active(self, image: MetadataImage) -> None:
        """Start the timers: the first round is after one interval."""
        del image
        self._term += 1
        for number, (interval_ms, _) in enumerate(self._kinds):
            if interval_ms > 0:
                self._look_after(interval_ms, number)

    def on_inactive(self) -> None:
        """Cancel the timers."""
        self._term += 1
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _look_after(self, delay_ms: int, number: int) -> None:
        self._timers[number] = self._scheduler.call_later(delay_ms, partial(self._look, number))

    def _look(self, number: int) -> None:
        del self._timers[number]
        _, elect = self._kinds[number]
        self._loop.submit(elect, partial(self._looked, self._term, number), is_own=True)

    def _looked(self, term: int, number: int, outcome: Outcome[bool]) -> None:
        if term != self._term:
            return
        interval_ms, _ = self._kinds[number]
        if not isinstance(outcome, Done):
            log.warning("elections are put off: error=%s", outcome.error)
        has_more = isinstance(outcome, Done) and outcome.response
        self._look_after(0 if has_more else interval_ms, number)
