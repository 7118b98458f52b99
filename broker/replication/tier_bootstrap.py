"""A follower whose log ends below its leader's local log begins again above, from the remote tier.

The leader sends only records of its local log. For the offsets below, a follower needs the epoch
chain, and the producers with their last sequences. The remote segment with the record before the
leader's local start has both, as of its end. So the log begins at that end, empty, and everything
below it is remote. The end must be
on the leader's epoch chain: a log cannot begin above a lineage that was given up. The leader has
copied its offsets again with other records (model finding F1).

The steps, and the state after a crash during each of them:

1. Tier: it reads epoch chain and snapshot of the segment that holds (epoch, offset). Nothing.
2. Pool: both are written to a directory of their own, with an empty segment, and marked complete. A
   start removes the directory.
3. Pool: the log is leased; its directory is renamed away, and the new one takes its name. A start
   completes the swap.
4. Loop: the partition has the new log, and is fetched again. Nothing.

A leader that has lost its log, as its followers have, begins again in the same way where an
operator orders it (`broker.replication.restoring`). Its log begins at the end of the newest
segment, and ends above all assigned offsets. It is paused from step 3 until it has its role again.

The partition is not fetched meanwhile, so it is in no ISR; other partitions of its fetcher
continue. If it gets another role before step 3, it keeps its old log. A segment that the tier does
not have yet is asked for again, as is everything that fails.

Source: KIP-405, "Follower fetch protocol in detail" (BuildingRemoteLogAuxState).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.replica.partition import Partition
from broker.replication.following import LocalStart, Stop, Wait
from kafka_protocol.errors import ApiError, CorruptFileError, ErrorCode, KafkaError
from kafka_protocol.types import EpochEntry
from local_log.errors import KafkaStorageError, LogClosed
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.manager.future_dirs import NewBeginning
from local_log.manager.log_dirs import LogManager
from local_log.recovery.acceptance import Accepted, Adopted
from rlm.link.messages import AuxiliaryStateAnswer, Restoration
from runtime.health_reasons import HealthLine, HealthReason
from runtime.incidents import Incident
from runtime.ports import Ports
from runtime.work import OnPool, Runner, Until, Work, logged

log = logging.getLogger(__name__)

AT_ONCE: Final = 16
"""Partitions in parallel: each needs two requests to the store and some fsyncs, which the disk
merges."""
LONG_MS: Final = 60_000
"""After so long a wait for the tier a partition is named in health."""
POOL: Final = "log-bootstrap"

State = AuxiliaryStateAnswer | KafkaError
AskState = Callable[[Partition, int, int, Sequence[EpochEntry], Callable[[State], None]], None]
"""Asks the tier for the state at (partition, offset, its epoch, the leader's later epochs). Answers
exactly once, on the event loop, with an error at the timeout. See `RemoteTier.auxiliary_state`."""


@dataclass(frozen=True, slots=True, eq=False)
class TierBootstrap:
    """A partition that is to begin above its log.

    Attributes:
        theirs: The leader's answer.
        is_current: The partition has the same role as before, and is not paused for another.
        ended: Called once. None: the log begins elsewhere, or the partition has another role.
        restoration: Of a leader: the end that its log is to have. Its start is the segment's.
    """

    partition: Partition
    theirs: LocalStart
    is_current: Callable[[], bool]
    ended: Callable[[Wait | Stop | None], None]
    restoration: Restoration | None = None


class TierBootstraps:
    """The bootstraps of one broker, few at a time; use it from the event loop's thread only.

    Attributes:
        logs: Of the broker.
    """

    def __init__(self, ask: AskState | None, logs: LogManager, ports: Ports) -> None:
        """Build nothing yet; without a tier to `ask` each partition waits for one."""
        self.logs = logs
        self._ask, self._clock = ask, ports.clock
        self._pool = ports.executors.pool(POOL, AT_ONCE)
        self._late: dict[Partition, tuple[int, str]] = {}  # since when, and why
        self._waiting: deque[TierBootstrap] = deque()
        self._asked: dict[TierBootstrap, Callable[[State], None]] = {}
        self._is_stopping = False
        failed = logged("bootstrap by the remote tier")
        self._runners = [Runner(self._work, ports.scheduler, failed=failed) for _ in range(AT_ONCE)]

    @property
    def count(self) -> int:
        """Partitions that wait or are worked on."""
        return len(self._waiting) + sum(one.is_running for one in self._runners)

    def problems(self) -> list[HealthLine]:
        """One line for all that have waited long for the remote tier of this broker."""
        before_ms = self._clock.monotonic_ms() - LONG_MS
        late = {one: why for one, (since_ms, why) in self._late.items() if since_ms <= before_ms}
        if not late:
            return []
        partition, why = next(iter(late.items()))
        return [
            HealthReason.FOLLOWING_WAITS.line(
                count=len(late), partition=partition.topic_partition, why=why
            )
        ]

    def forget(self, partition: Partition) -> None:
        """Stop counting it as waiting for the tier."""
        self._late.pop(partition, None)

    def begin(self, bootstrap: TierBootstrap) -> None:
        """Build its state in its turn."""
        self._waiting.append(bootstrap)
        idle = next((one for one in self._runners if not one.is_running), None)
        if idle is not None:
            idle.start()

    async def stop(self) -> None:
        """Begin no more; returns when no thread works on a directory and no log is leased."""
        self._is_stopping = True
        self._waiting.clear()
        for answered in list(self._asked.values()):
            answered(ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, "the broker stops"))
        idle = [asyncio.get_running_loop().create_future() for _ in self._runners]
        for runner, future in zip(self._runners, idle, strict=True):
            runner.when_idle(partial(future.set_result, None))
        await asyncio.gather(*idle)

    def _work(self) -> Work[None]:
        while self._waiting:
            bootstrap = self._waiting.popleft()
            outcome: Wait | Stop | None = None
            try:
                outcome = yield from self._built(bootstrap)
            except KafkaError as error:
                outcome = Wait(str(error), is_fault=True)
                if bootstrap.partition.log.is_offline:
                    outcome = Stop(str(error), is_failure=True)  # until a restart
            except CorruptFileError as error:
                tp = bootstrap.partition.topic_partition
                log.error(Incident.REMOTE_STATE.line(partition=tp, error=error))  # noqa: TRY400 - no defect
                outcome = Stop(f"the remote state is damaged: {error}", is_failure=True)
            except Exception as error:
                log.exception(
                    Incident.DEFECT.line(
                        what=f"bootstrap failed: {bootstrap.partition.topic_partition}"
                    )
                )
                outcome = Stop(f"a defect: {error!r}", is_failure=True)
            if not self._is_stopping:
                self._note(bootstrap, outcome)
                bootstrap.ended(outcome)
            yield None

    def _note(self, bootstrap: TierBootstrap, outcome: Wait | Stop | None) -> None:
        partition = bootstrap.partition
        if isinstance(outcome, Wait) and outcome.is_for_tier and bootstrap.is_current():
            since_ms, _ = self._late.get(partition, (self._clock.monotonic_ms(), ""))
            self._late[partition] = since_ms, outcome.reason
        else:
            self.forget(partition)

    def _built(self, one: TierBootstrap) -> Work[Wait | Stop | None]:
        if not one.is_current():
            return None
        partition, theirs = one.partition, one.theirs
        began_ms, tp = self._clock.monotonic_ms(), partition.topic_partition
        state = yield from self._state(one)
        if isinstance(state, KafkaError):
            is_fault = state.code == ErrorCode.CORRUPT_MESSAGE
            return Wait(
                f"the remote tier does not give the state at offset {theirs.offset - 1} of epoch "
                f"{theirs.epoch_below} yet: {state}",
                is_fault=is_fault,
                is_for_tier=not is_fault,
            )
        chain = [EpochEntry(epoch, start) for epoch, start in state.chain]
        if one.restoration is not None and chain:
            theirs = theirs._replace(log_start=chain[0].start_offset)
        beginning = NewBeginning(state.end_offset, theirs.log_start, chain, state.producer_snapshot)
        if reason := why_unfit(beginning, theirs):
            return Wait(reason, is_fault=True)
        if one.restoration is not None:
            beginning = ending_above(beginning, one.restoration)
        future = yield OnPool(self._pool, self.logs.build_future, tp, beginning)
        old = partition.log
        try:
            is_current = one.is_current() and not old.lease.is_leased
            swap = self.logs.plan_swap(future) if is_current else None
        except LogClosed:
            swap = None
        if swap is None:
            yield OnPool(self._pool, self.logs.drop_future, future)
            return None
        if partition.is_leader:
            partition.pause()
        old.lease.grant(truncates=True)
        try:
            swapped = self.logs.take_swapped(swap, (yield OnPool(self._pool, swap.carry_out)))
            if isinstance(swapped, KafkaStorageError):
                raise swapped
            partition.replace_log(swapped)
        finally:
            old.lease.take_back()
        log.info(
            "log begins at the end of a remote segment: partition=%s offset=%d log_start=%d "
            "had_end=%d took_ms=%d",
            tp,
            beginning.offset,
            beginning.log_start,
            old.log_end_offset,
            self._clock.monotonic_ms() - began_ms,
        )
        return None

    def _state(self, one: TierBootstrap) -> Work[State]:
        """Ask the tier; the answer may come before the call returns."""
        if self._ask is None:
            return ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, "this broker has no remote tier")
        ask, found = self._ask, list[State]()

        def begin(proceed: Callable[[], None]) -> None:
            def answered(state: State) -> None:
                if self._asked.pop(one, None) is not None:
                    found.append(state)
                    proceed()

            self._asked[one] = answered
            theirs = one.theirs
            ask(one.partition, theirs.offset - 1, theirs.epoch_below, theirs.above, answered)

        yield Until(begin)
        return found.pop()


def ending_above(beginning: NewBeginning, restoration: Restoration) -> NewBeginning:
    """Return it with a log end above all assigned offsets; the offsets between are a gap.

    Raises:
        CorruptFileError: The epoch chain has a gap.
    """
    chain = tuple(beginning.clipped_chain())
    adopted = None
    if restoration.end > beginning.offset:
        adopted = Adopted(None, restoration.end, chain)
    accepted = Accepted(adopted=adopted, adopted_epoch=restoration.given_epoch)
    return beginning._replace(accepted=accepted)


def why_unfit(beginning: NewBeginning, theirs: LocalStart) -> str:
    """Why a log must not begin with this state; "": it may.

    The tier was asked for one (epoch, offset). A segment that does not hold it, or whose epoch
    chain differs for it or above it, is of another lineage, or damaged. The leader would find the
    log diverging, and it would be built again without end.
    """
    chain, asked, end = LeaderEpochCache(beginning.chain), theirs.offset - 1, beginning.offset
    leaders = LeaderEpochCache([EpochEntry(theirs.epoch_below, asked), *theirs.above])
    said, expected = chain.between(asked, end), leaders.between(asked, end)
    if end <= asked or said != expected:
        return (
            f"the remote segment for offset {asked} of epoch {theirs.epoch_below} ends at {end}, "
            f"and has from that offset on {_text_of(said)}; the leader's log has "
            f"{_text_of(expected)}"
        )
    if chain.epoch_for(theirs.log_start) is None:
        return (
            f"the epochs in the remote segment for offset {asked} begin above the leader's log "
            f"start {theirs.log_start}"
        )
    return ""


def _text_of(chain: Sequence[EpochEntry]) -> str:
    epochs = [f"epoch {entry.epoch} from {entry.start_offset}" for entry in chain]
    return ", ".join(epochs) or "no epoch"
