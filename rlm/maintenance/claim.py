"""The tier's claim on the store, by which old copies of its directories and clones are detected.

A claim is a number in the store for each broker. This broker's claim never falls. Before it is
written to the store it is noted durably in the counter's file, beside the claim that was found
there. If the store has a higher claim that is not noted here, it was written from a later state of
these files, or from a copy of them. This tier then copies and deletes nothing. The files alone
cannot show that (docs/decisions/the-claim.md).

A store without a claim, where these files noted that it had one, is not mounted, or is another
store, or was emptied. The tier then also copies and deletes nothing, lets its broker keep the local
segments, and asks again.

Once any thread has found a later claim, no call that copies or deletes objects starts
(`PluginCalls.let_write`). The tasks of the tier end at their next step.

The claim is validated and written at the start, at every interval, and at a clean stop. So a copy
made while the tier ran is detected too. While the store does not answer, the tier continues with
all work that does not need it.

`validate` is pure; `Claim` belongs to the tier's thread, its calls to the plugin run in a pool.
"""

import logging
from collections.abc import Callable
from enum import Enum

from kafka_protocol.errors import TidemarkError
from rlm.config import TierConfig
from rlm.maintenance.incarnation import Counter, Incarnations
from rlm.plugin_calls import Cancellation
from rlm.plugins import Store
from rlm.workers import EXPIRATION_POOL, Workers
from rsm_plugins.api import ClaimKeeper, RetriableRemoteStorageError
from runtime.health_reasons import HEALTHY, HealthReason, HealthText
from runtime.log_context import Outage
from runtime.ports import Ports
from runtime.rng import Backoff
from runtime.scheduler import Timer

log = logging.getLogger(__name__)

FIRST_ANSWER_MS = 5_000
"""Wait for the first answer before partitions are owned without it."""


class ClaimState(Enum):
    """State of the claim."""

    UNASKED = "not validated yet"
    AWAY = "not validated, the store does not answer"
    HELD = "ours"
    REFUSED = "of a later time"
    MISSING = "not there, and it was before"
    NOT_KEPT = "not kept by this plugin"


class LaterClaimError(TidemarkError):
    """The store holds a claim that these files have never made."""

    def __init__(self, unhealthy: HealthText) -> None:
        super().__init__(unhealthy)
        self.unhealthy = unhealthy


class MissingClaimError(TidemarkError):
    """The store holds no claim, and held one before."""

    def __init__(self, unhealthy: HealthText) -> None:
        super().__init__(unhealthy)
        self.unhealthy = unhealthy


def validate(found: int | None, known: Counter) -> HealthText:
    """Return why this is not the store that these files claimed last; HEALTHY where it is.

    A number that was noted here proves nothing about lower numbers: it may never have been written,
    and another machine's clock may be behind.

    Args:
        found: The store's claim, None if it holds none.
        known: The counter's file. A noted number does not prove that the store ever held it: a
            crash or a failed PUT may come between. No claim in it means that the counter was lost,
            or that nothing was ever validated; nothing can be concluded then.
    """
    if known.claimed is None or found in (*known.before, known.claimed):
        return HEALTHY
    if found is None:
        missing = HealthReason.CLAIM_MISSING.text(claimed=known.claimed)
        return missing if known.was_there else HEALTHY
    if found < (*known.before, known.claimed)[0]:
        return HEALTHY
    return HealthReason.CLAIM_REFUSED.text(found=found, claimed=known.claimed)


class Claim:
    """This tier's claim.

    Attributes:
        state: State of the claim.
        unhealthy: The health reason.
    """

    def __init__(
        self,
        config: TierConfig,
        store: Store,
        incarnations: Incarnations,
        workers: Workers,
        ports: Ports,
        changed: Callable[[], None],
    ) -> None:
        """Ask nothing before `begin`; `changed` is called after each change of `state`."""
        self._keeper = store.storage if isinstance(store.storage, ClaimKeeper) else None
        self._owner = config.cluster_id, config.node_id
        self._limit_ms, self._interval_ms = config.call_max_ms, config.claim_interval_ms
        self._incarnations, self._calls, self._workers = incarnations, store.calls, workers
        self._scheduler, self._changed = ports.scheduler, changed
        self._backoff = Backoff(
            config.retry_backoff_ms,
            config.retry_backoff_max_ms,
            config.retry_jitter,
            ports.rng,
        )
        self._timer: Timer | None = None
        self._running: object | None = None
        self._ended = self._once_more = False
        self._refused = Cancellation()
        self._outage = Outage(log, "taking the claim on the store", ports.clock)
        self.state = ClaimState.NOT_KEPT if self._keeper is None else ClaimState.UNASKED
        self.unhealthy = HEALTHY
        store.calls.let_write(self.state is ClaimState.NOT_KEPT)

    @property
    def may_own(self) -> bool:
        """True if the tier may write to the metadata topic."""
        return self.state not in {ClaimState.UNASKED, ClaimState.REFUSED}

    @property
    def is_idle(self) -> bool:
        """True if no call of the plugin runs."""
        return self._running is None

    def begin(self) -> None:
        """Ask the store for the first time."""
        if self._keeper is None:
            log.warning(
                "the storage plugin keeps no claims: directories of an earlier day and clones of"
                " this machine are not found out"
            )
            return
        self._scheduler.call_later(FIRST_ANSWER_MS, self._without_an_answer)
        self.take()

    def end(self) -> None:
        """Renew the claim for the last time, if it is ours: copies made from now on are older."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self.state is ClaimState.HELD:
            self.take()

    def take(self) -> None:
        """Ask the store and write the claim, unless that is under way."""
        if self._running is not None:
            # The running call may have noted its number before the last writes to the store.
            self._once_more = self._ended
            return
        running = self._running = object()

        def done(number: int | None, error: BaseException | None) -> None:
            if self._running is running:
                self._running = None
                self._taken(number, error)
                if self._once_more and self.state is ClaimState.HELD:
                    self._once_more = False
                    self.take()
            elif isinstance(error, LaterClaimError):  # found by a call that had been abandoned
                self._taken(None, error)

        def given_up() -> None:
            done(None, RetriableRemoteStorageError("the call hangs"))

        self._workers.run(EXPIRATION_POOL, lambda: self._validate_and_write(given_up), done)

    # ------------------------------------------------------------------ inside

    def _without_an_answer(self) -> None:
        if self.state is ClaimState.UNASKED:
            self.unhealthy = HealthReason.CLAIM_AWAY.text(error="the store has not answered yet")
            self._become(ClaimState.AWAY)

    def _validate_and_write(self, given_up: Callable[[], None]) -> int:
        """Validate, then write a higher claim; runs in a pool.

        Raises:
            LaterClaimError: The claim is not ours; nothing was written.
            MissingClaimError: The claim is no longer there; nothing was written.
            TaskCancelledError: Another call has found a later claim meanwhile; nothing was written.
        """
        assert self._keeper is not None
        with self._calls.call(EXPIRATION_POOL, "claim", self._limit_ms, on_overdue=given_up):
            found = self._keeper.read_claim(*self._owner)
        reason = validate(found, self._incarnations.counter)
        if reason and found is None:
            raise MissingClaimError(reason)
        if reason:
            self._refused.cancel()
            self._calls.let_write(False)
            raise LaterClaimError(reason)
        number = self._incarnations.claim(found)
        with self._calls.call(
            EXPIRATION_POOL, "claim", self._limit_ms, self._refused, on_overdue=given_up
        ):
            self._keeper.write_claim(*self._owner, number)
        self._incarnations.written()
        return number

    def _taken(self, number: int | None, error: BaseException | None) -> None:
        if self.state is ClaimState.REFUSED:
            return
        if number is not None:
            self.unhealthy = HEALTHY
            self._outage.succeeded()
            log.info("the claim on the store is taken: number=%d", number)
            self._again(self._interval_ms)
            self._become(ClaimState.HELD)
        elif isinstance(error, LaterClaimError):
            self.unhealthy = error.unhealthy
            log.error("%s", self.unhealthy)
            self._become(ClaimState.REFUSED)
        elif isinstance(error, MissingClaimError):
            if self.state is not ClaimState.MISSING:
                log.error("%s", error.unhealthy)
            self.unhealthy = error.unhealthy
            self._again(self._backoff.next_ms())
            self._become(ClaimState.MISSING)
        elif self.state is ClaimState.MISSING:  # a failed call does not bring the claim back
            self._again(self._backoff.next_ms())
        elif self.state is ClaimState.HELD:
            self._outage.failed(error)
            self._again(self._interval_ms)
        else:
            self.unhealthy = HealthReason.CLAIM_AWAY.text(error=error)
            self._outage.failed(f"nothing is copied until then: {error}")
            self._again(self._backoff.next_ms())
            self._become(ClaimState.AWAY)

    def _again(self, delay_ms: float) -> None:
        if not self._ended:
            self._timer = self._scheduler.call_later(delay_ms, self.take)

    def _become(self, state: ClaimState) -> None:
        if state is not self.state:
            self.state = state
            self._calls.let_write(state is ClaimState.HELD and not self._ended)
            self._calls.store_is_missing = state is ClaimState.MISSING
            if self._refused.cancelled:  # another thread has found a later claim meanwhile
                self._calls.let_write(False)
            self._changed()
