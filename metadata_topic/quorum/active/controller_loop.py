"""The active controller of a quorum: receives roles, commits and images, takes decisions.

    loop = ControllerLoop(world)
    loop.on_role(changed); loop.on_committed(offset); loop.on_applied(image, offset)
    loop.submit(lambda image: create_topics.steps(image, ...), done, timeout_ms=30_000)

The controller becomes active once all records before its epoch's first record are applied here and
that record is committed. Before that, and on every other node, a request gets NOT_CONTROLLER at
once. `term` has the work of an active controller.

Callback-based and deterministic, on the loop's thread: no asyncio, no threads, no clock of its own.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from metadata_topic.controller.errors import ControllerOverloadedError, NotControllerError
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.quorum.active.activation import is_blank
from metadata_topic.quorum.active.decisions import Decide, Decision, Failed, Outcome, ignore_place
from metadata_topic.quorum.active.ports import ControllerWorld, Watcher
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS
from metadata_topic.quorum.active.term import ControllerTerm
from metadata_topic.raft.effects import RoleChanged
from metadata_topic.raft.roles import Role
from runtime.incidents import Incident

log = logging.getLogger(__name__)

R = TypeVar("R")

_PASS_ON_MS: Final = 1_000
"""Delay before a controller that cannot lead resigns, so that others catch up first."""


class ControllerLoop:
    """The controller of one node, active or not.

    Attributes:
        image: The newest committed image that is applied here.
    """

    def __init__(self, world: ControllerWorld) -> None:
        """Take the ports; no effect before the first `on_role`."""
        self.image = EMPTY_IMAGE
        self._world = world
        self._applied = self._committed = 0
        self._role: RoleChanged | None = None
        self._term: ControllerTerm | None = None
        self._ended_epoch = -1
        self._is_closed = False
        self._watchers: list[Watcher] = []
        world.metrics.show(
            is_active=lambda: self.is_active,
            applied=self._last_applied,
            committed=lambda: self._committed - 1,
        )

    @property
    def is_active(self) -> bool:
        """True if this node takes decisions."""
        return self._term is not None

    @property
    def decided_image(self) -> MetadataImage:
        """Image for the next decision on the active controller, `image` elsewhere."""
        return self.image if self._term is None else self._term.decided

    @property
    def decision_count(self) -> int:
        """Number of decisions that wait or are not committed yet."""
        return 0 if self._term is None else self._term.decision_count

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` whenever this node becomes or ceases to be the active controller."""
        self._watchers.append(watcher)

    # -- events ---------------------------------------------------------------------------------

    def on_role(self, role: RoleChanged) -> None:
        """Take a change of this node's role, epoch or leader."""
        known, self._role = self._role, role
        is_news = known is None or (known.epoch, known.leader_id) != (role.epoch, role.leader_id)
        if is_news and role.leader_id is not None:
            self._world.metrics.new_controllers.inc()
        term = self._term
        if term is not None and (role.role is not Role.LEADER or role.epoch != term.epoch):
            self._end_term("this node ceased to be the active controller")
        self._begin_term_if_ready()

    def on_committed(self, offset: int) -> None:
        """Take the high watermark: all below `offset` (exclusive) is committed."""
        self._committed = offset
        self._continue()

    def on_applied(self, image: MetadataImage, offset: int) -> None:
        """Take the image that readers of this node now have.

        Args:
            image: Ends at `offset`, or earlier if a metadata transaction is open.
            offset: Committed records up to here (exclusive) have been read.
        """
        self.image, self._applied = image, offset
        self._continue()

    def _continue(self) -> None:
        if self._term is None:
            self._begin_term_if_ready()
        else:
            self._term.settle(min(self._applied, self._committed), self.image)

    def when_quiet(self, do: Callable[[], None]) -> None:
        """Call `do` when all decisions taken are in the log and none is in progress."""
        if self._term is None:
            do()
        else:
            self._term.when_quiet(do)

    # -- terms ----------------------------------------------------------------------------------

    def _begin_term_if_ready(self) -> None:
        role = self._role
        if role is None or role.role is not Role.LEADER or self._is_closed:
            return
        if self._term is not None or role.epoch <= self._ended_epoch:
            return
        start, read = role.epoch_start_offset, min(self._applied, self._committed)
        if start is None or read <= start or read < self._world.log.log_end():
            return
        problem = self._world.settings.bootstrap_problem
        if problem and is_blank(self.image):  # before this term writes or decides anything
            self._ended_epoch = role.epoch
            text = f"the first records of a controller cannot be written: {problem}"
            pass_on = partial(self._pass_on, role.epoch, text)
            self._world.scheduler.call_later(_PASS_ON_MS, pass_on)
            return
        self._term = term = ControllerTerm(self._world, role.epoch, self.image, self._fail_term)
        log.info("this node is the active controller: epoch=%d offset=%d", role.epoch, read)
        term.begin()
        term.settle(read, self.image)
        for watcher in self._watchers:
            if self._term is term:
                watcher.on_active(term.decided)

    def _end_term(self, why: str) -> None:
        term, self._term = self._term, None
        assert term is not None
        self._ended_epoch = term.epoch
        log.info("%s: epoch=%d dropped=%d", why, term.epoch, term.decision_count)
        for watcher in self._watchers:
            watcher.on_inactive()
        term.end(why)

    def _fail_term(self, reason: str) -> None:
        self._end_term("this controller cannot continue")
        self._give_up(reason)

    def _pass_on(self, epoch: int, reason: str) -> None:
        role = self._role
        if role is not None and (role.role, role.epoch) == (Role.LEADER, epoch):
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        log.error(Incident.CONTROLLER_GIVES_UP.line(reason=reason))
        self._world.resign(reason)

    def close(self) -> None:
        """Take no more decisions, because the process ends; fine to call twice."""
        self._is_closed = True
        if self._term is not None:
            self._end_term("this controller stops")

    # -- decisions ------------------------------------------------------------------------------

    def submit(
        self,
        decide: Decide[R],
        done: Callable[[Outcome[R]], None],
        *,
        timeout_ms: int = DECISION_TIMEOUT_MS,
        placed: Callable[[int], None] = ignore_place,
        is_own: bool = False,
    ) -> None:
        """Take a decision, and commit it.

        Args:
            decide: A controller function on the newest decided image, at once or in steps.
            done: Called once, perhaps before this returns; must not raise. With `Done` the
                decision is committed and visible on this node. `Failed` has the error of `decide`,
                NotControllerError (41), ControllerOverloadedError (41) or DecisionTimedOut (7).
            timeout_ms: Until `done` must be called; 0 or less for the default. A decision in
                progress at that time is still completed.
            placed: See `Decision`; not called if `decide` raises.
            is_own: The controller's own decision, never refused for overload.
        """
        term = self._term
        if term is None:
            done(Failed(NotControllerError(self._who_leads())))
            return
        if not is_own and term.decision_count >= self._world.settings.decisions_max:
            text = f"{term.decision_count} changes wait already; try again"
            done(Failed(ControllerOverloadedError(text)))
            return
        now_ms = self._world.clock.monotonic_ms()
        decision = Decision(decide, done, asked_ms=now_ms, placed=placed)
        term.add(decision, timeout_ms if timeout_ms > 0 else DECISION_TIMEOUT_MS)

    def _who_leads(self) -> str:
        leader = None if self._role is None else self._role.leader_id
        if leader is None:
            return "This node is not the active controller, and none is known."
        return f"This node is not the active controller; node {leader} leads the quorum."

    def _last_applied(self) -> tuple[int, int, int]:
        provenance = self.decided_image.provenance
        lag_ms = 0
        if not self.is_active and provenance.timestamp_ms >= 0:
            lag_ms = max(0, self._world.clock.wall_ms() - provenance.timestamp_ms)
        return provenance.offset, provenance.timestamp_ms, lag_ms
