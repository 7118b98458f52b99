"""Follows the partitions that one other broker leads: fetches their new records and appends them.

The event loop sends one Fetch at a time and walks through its answer in slices, without a look at
the records. Then one call appends and truncates for all partitions of the answer, on a pool thread
if it is long. The loop publishes its results, and only then sends the next Fetch, as Kafka's
fetcher does.

A log is leased to the pool for that call (`local_log.log.lease`). No log is leased under a
leadership that is over: a role changes when the log is back, and until then the partition is
paused. So a partition may be added, removed or given another leader at any moment.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from broker.replica.follower_reads import Heard
from broker.replica.partition import Partition
from broker.replication.fetch_session import Asked, FetchSession, PartitionId, Question
from broker.replication.fetch_wire import (
    VERSIONS,
    FetchAnswer,
    FetchTerms,
    PartitionAnswer,
    encoded,
    walked,
)
from broker.replication.following import (
    FIRST_WAIT_MS,
    Append,
    Begin,
    Build,
    FindLocalStart,
    FindRange,
    Following,
    LocalStart,
    Standing,
    Stop,
    Truncate,
    Wait,
    after_local_start,
    after_range,
    decided,
    is_current,
    is_cut_below,
)
from broker.replication.leader_requests import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    RANGES_AT_ONCE,
    leader_local_starts,
    leader_ranges,
    sent,
)
from broker.replication.log_changes import (
    Followed,
    LogChange,
    after_error,
    carry_out,
    cut_of,
)
from broker.replication.throttle import FollowerThrottle
from broker.replication.tier_bootstrap import TierBootstrap, TierBootstraps
from kafka_client.connection import Connection
from kafka_client.requests import Answer, ClientError
from kafka_client.transport import Address
from kafka_protocol.errors import ErrorCode, KafkaError, MalformedMessageError
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from local_log.log.partition_log import PartitionLog
from local_log.log.results import Appended, Ended
from local_log.manager.log_dir import LOG_STARTS
from runtime.executors import side_by_side
from runtime.health_reasons import HealthLine, HealthReason
from runtime.ports import Ports
from runtime.scheduler import Timer
from runtime.work import OnPool, Pace, Runner, Steps, Work, logged

log = logging.getLogger(__name__)

POOL: Final = "log-follow"
THREADS: Final = 2
_UNITS: Final = 10
"""Microseconds, about, to decide on a partition or to publish it."""
AT_ONCE_BYTES: Final = 128 << 10
"""Up to so many bytes of an answer are appended on the event loop, as those of a producer are."""
AT_ONCE_MAX: Final = 30
"""Partitions of such an answer."""
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """Settings that all fetchers of a broker share.

    Attributes:
        terms: Of each Fetch.
        backoff_ms: Longest pause after an error (`replica.fetch.backoff.ms`).
        timeout_ms: For an answer (`replica.socket.timeout.ms`).
        from_last_tiered: An empty log leaves out what its leader has copied
            (`follower.fetch.last.tiered.offset.enable`).
        throttle: Of all throttled replicas.
    """

    terms: FetchTerms
    throttle: FollowerThrottle
    backoff_ms: int = 1_000
    timeout_ms: int = 30_000
    from_last_tiered: Callable[[], bool] = lambda: False


@dataclass(slots=True)
class _ToDo:
    """The partitions of one answer, by the work that they need.

    Attributes:
        changes: Logs that the answer changes.
        out_of_range: Their leader is asked for its range.
        moved: Their leader is asked for its local start: the records they need are remote there.
            With the log end, or -1: nothing of the log counts.
    """

    changes: list[LogChange] = field(default_factory=list)
    out_of_range: list[Followed] = field(default_factory=list)
    moved: dict[Followed, int] = field(default_factory=dict)


class ReplicaFetcher:
    """The fetcher for one leader; use it from the event loop's thread only.

    Attributes:
        leader_id: The broker that is followed.
        lags: Of partitions that have one, in offsets.
        failed: Why partitions count as failed.
        trouble: Why the leader gives no usable answer; empty while it does.
    """

    def __init__(
        self,
        leader_id: int,
        *,
        connect: Callable[[Address], Connection],
        settings: FetcherSettings,
        broker_epoch: Callable[[], int],
        bootstraps: TierBootstraps,
        ports: Ports,
    ) -> None:
        """Ask nothing yet.

        Args:
            leader_id: The broker that is followed.
            connect: Makes the connection to an address; opens nothing.
            settings: Of all fetchers.
            broker_epoch: Of this broker's present incarnation.
            bootstraps: Of the broker, with its logs.
            ports: Clock, scheduler and pools.
        """
        self.leader_id = leader_id
        self.lags: dict[PartitionId, int] = {}
        self.failed: dict[PartitionId, HealthLine] = {}
        self.trouble = ""
        self._connect, self._settings, self._broker_epoch = connect, settings, broker_epoch
        self._bootstraps, self._logs = bootstraps, bootstraps.logs
        self._clock, self._scheduler = ports.clock, ports.scheduler
        self._pool, self._commit = ports.executors.pool(POOL, THREADS), ports.executors.commit
        self._address: Address | None = None
        self._connection: Connection | None = None
        self._session, self._heard = FetchSession(), Heard(ports.clock, settings.terms.wait_ms)
        self._followed: dict[PartitionId, Followed] = {}
        self._starts: dict[PartitionId, Followed] = {}  # whose log start is to be made durable
        self._unflushed: dict[PartitionId, Followed] = {}  # of durable topics
        self._waits: list[tuple[int, PartitionId]] = []  # a heap, by time
        self._pauses_until_ms, self._failures = 0, 0
        self._timer: Timer | None = None
        self._runner = Runner(self._work, ports.scheduler, failed=logged("replica fetcher"))
        self._is_due = False

    # -- partitions

    def __contains__(self, partition: Partition) -> bool:
        return _id_of(partition) in self._followed

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def is_idle(self) -> bool:
        """True if it follows nothing, and no thread has a log of its partitions."""
        return not self._followed and not self._runner.is_running

    def follow(self, partition: Partition) -> None:
        """Follow a partition under its present leadership, or continue with it.

        Its log is not leased. While it was paused, answers of its leader may have been dropped.
        """
        partition_id, epoch = _id_of(partition), partition.leader_epoch
        known = self._followed.get(partition_id)
        if known is None or (known.partition, known.following.leader_epoch) != (partition, epoch):
            self.let_go(partition)
            followed = Followed(partition_id, partition, Following(epoch))
            self._followed[partition_id] = followed
            self._ask(followed)
            self.keep_log_start(partition)
        elif known.following.standing is Standing.ASKED:
            self._ask(known)
            self._session.renew(partition_id)
        self._continue_soon()

    def keep_log_start(self, partition: Partition) -> None:
        """Make its log start durable where it is not, and send it; its log is not leased."""
        followed = self._followed.get(_id_of(partition))
        if followed is None:
            return
        if partition.log.log_start_offset != self._kept_start(followed):
            self._starts[followed.id] = followed
        elif followed.following.standing is Standing.ASKED:
            self._ask(followed)  # another task has made it durable
        self._continue_soon()

    def let_go(self, partition: Partition) -> None:
        """Stop following it; a lease of its log lasts until the call on the pool ends."""
        partition_id = _id_of(partition)
        if self._followed.pop(partition_id, None) is not None:
            for kept in (self.lags, self.failed, self._starts, self._unflushed):
                kept.pop(partition_id, None)
            self._session.forget(partition_id)
            partition.unheard()
            self._continue_soon()

    def reach(self, address: Address | None) -> None:
        """Send to this address from now on; None: the metadata have none."""
        if address != self._address:
            before, self._connection, self._address = self._connection, None, address
            self._pauses_until_ms = 0
            if before is not None:
                before.close()  # a Fetch under way ends without an answer
            self._continue_soon()

    async def stop(self) -> None:
        """Send nothing more; returns when no thread has a log of its partitions."""
        self._followed.clear()
        if self._timer is not None:
            self._timer.cancel()
        await self._runner.stop()
        if self._connection is not None:
            self._connection.close()

    # -- one Fetch after the other

    def _continue_soon(self) -> None:
        """Continue after this iteration of the event loop, which may bring more partitions.

        The next Fetch may take long, and should cover them.
        """
        if not self._is_due:
            self._is_due = True
            self._scheduler.call_soon(self._continue)

    def _continue(self) -> None:
        self._is_due = False
        self._runner.start()

    def _work(self) -> Work[None]:
        while True:
            yield from self._keep_starts()
            now_ms = self._clock.monotonic_ms()
            yield from self._end_waits(now_ms)
            yield from self._flush_durable()
            question = None if now_ms < self._pauses_until_ms else self._session.question()
            if question is None:
                break
            if self._address is None:
                self._leader_failed("the metadata do not say where it listens")
                continue
            yield from self._asked(self._address, question)
        self._wake_when_due(now_ms)

    def _wake_when_due(self, now_ms: int) -> None:
        """Continue when the pause after a failure is over, or a partition waited long enough."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._waits[0][0] if self._waits else None
        if self._pauses_until_ms > now_ms and self._followed:
            due_ms = self._pauses_until_ms
        if due_ms is not None:
            self._timer = self._scheduler.call_later(max(due_ms - now_ms, 0), self._continue)

    def _asked(self, address: Address, question: Question) -> Work[None]:
        """Send one Fetch, and act on its answer."""
        if self._connection is None:
            self._connection = self._connect(address)
        connection = self._connection
        wait_ms = 0 if question.is_hurried else self._longest_wait_ms()
        terms, timeout_ms = self._settings.terms, self._settings.timeout_ms
        body = yield from encoded(
            question, terms, broker_epoch=self._broker_epoch(), wait_ms=wait_ms
        )
        asked_ms = self._clock.monotonic_ms()
        answer = yield from sent(
            connection, ApiKey.FETCH, body, versions=VERSIONS, read=None, timeout_ms=timeout_ms
        )
        if isinstance(answer, ClientError):
            if connection is self._connection:
                self._leader_failed(str(answer))
            else:
                self._session.lost()
            return
        try:
            found = yield from _read(answer)
            if self._is_good(question, found):
                self._heard.answered(asked_ms)
                yield from self._take(found)
        except MalformedMessageError as error:
            self._leader_failed(f"it sends what is no answer to a Fetch: {error}")
        finally:
            answer.release()

    def _longest_wait_ms(self) -> int:
        """Bound of the leader's wait: a partition that is put off is fetched when it is due."""
        longest_ms = self._settings.terms.wait_ms
        if self._waits:
            longest_ms = min(longest_ms, self._waits[0][0] - self._clock.monotonic_ms())
        return max(longest_ms, 0)

    def _is_good(self, question: Question, answer: FetchAnswer) -> bool:
        """Take the answer as a whole; returns whether its partitions count."""
        last_sent = self._session.last_sent
        if not self._session.answered(answer.error, answer.session_id):
            error = ErrorCode.of(answer.error)
            if error in _SESSION_ERRORS and not self._failures:
                self._failures = 1  # a full request is next, at once
            else:
                self._leader_failed(f"it answers {error.name}, session {answer.session_id}")
            return False
        if not answer.partitions.keys() <= last_sent.keys():
            self._leader_failed("it answers for partitions that it was not asked for")
            return False
        if question.is_full and len(answer.partitions) < len(last_sent):
            self._leader_failed(
                f"it answers for {len(answer.partitions)} of {len(last_sent)} partitions"
            )
            return False
        if self.trouble:
            log.info("leader answers again: broker=%d", self.leader_id)
        self.trouble, self._failures = "", 0
        return True

    def _leader_failed(self, reason: str) -> None:
        """Begin another session after a pause: there is no usable answer."""
        self._session.lost()
        if not self.trouble:
            log.warning("leader cannot be followed: broker=%d: %s", self.leader_id, reason)
        self.trouble = reason
        pause_ms = min(FIRST_WAIT_MS << min(self._failures, 20), self._settings.backoff_ms)
        self._failures += 1
        self._pauses_until_ms = self._clock.monotonic_ms() + pause_ms

    # -- one answer

    def _take(self, answer: FetchAnswer) -> Work[None]:
        pace = Pace()
        todo = _ToDo()
        for one in answer.partitions.values():
            followed = self._current(one.partition)
            if followed is None:
                self._dropped(one.partition)
            else:
                self._decide(followed, one, todo)
            if pace.is_step_over(_UNITS):
                yield None
        yield from self._change(todo.changes)
        out_of_range = todo.out_of_range
        for first in range(0, len(out_of_range), RANGES_AT_ONCE):
            yield from self._settle_ranges(out_of_range[first : first + RANGES_AT_ONCE], todo)
        moved = list(todo.moved)
        for first in range(0, len(moved), RANGES_AT_ONCE):
            yield from self._settle_moved(moved[first : first + RANGES_AT_ONCE], todo.moved)

    def _current(self, partition_id: PartitionId) -> Followed | None:
        """The partition, if the answer to its last request may still change its log; else None."""
        followed, asked = (
            self._followed.get(partition_id),
            self._session.last_sent.get(partition_id),
        )
        if followed is None or asked is None or followed.following.standing is not Standing.ASKED:
            return None
        epoch, end = followed.following.leader_epoch, followed.log.log_end_offset
        holds = is_current(asked, leader_epoch=epoch, log_end=end)
        return followed if holds and self._is_led(followed) else None

    def _dropped(self, partition_id: PartitionId) -> None:
        """Have the leader repeat its answer for a partition, which was not used.

        A paused partition is not fetched: `follow` is called when its role is settled.
        """
        followed = self._followed.get(partition_id)
        if followed is None or self._is_led(followed):
            self._session.renew(partition_id)
        else:
            self._session.forget(partition_id)

    def _is_led(self, followed: Followed) -> bool:
        """True if a partition is followed as it was, and not paused for its next role."""
        is_known = self._followed.get(followed.id) is followed
        return is_known and followed.partition.leader_id == self.leader_id

    def _decide(self, followed: Followed, answer: PartitionAnswer, todo: _ToDo) -> None:
        decision = decided(answer)
        if isinstance(decision, FindRange):
            todo.out_of_range.append(followed)
        elif isinstance(decision, FindLocalStart):
            todo.moved[followed] = followed.log.log_end_offset
        elif isinstance(decision, Append) and not answer.records:
            self._take_over(followed, answer)
        elif isinstance(decision, Wait | Stop):
            self._put_off(followed, decision)
        else:
            self._to_change(followed, decision, todo)

    def _to_change(
        self, followed: Followed, decision: Append | Truncate | Begin, todo: _ToDo
    ) -> None:
        """Have the log changed, unless a truncation would leave neither records nor producers."""
        own = followed.log
        if isinstance(decision, Truncate) and is_cut_below(
            cut_of(own, decision.theirs),
            log_start=own.log_start_offset,
            local_start=own.local_log_start_offset,
        ):
            todo.moved[followed] = -1
            return
        todo.changes.append(LogChange(followed, decision, self._session.last_sent[followed.id]))

    def _change(self, changes: Sequence[LogChange]) -> Work[None]:
        """Have the logs changed, and publish the results."""
        if not changes:
            return
        leased: list[LogChange] = []
        pace = Pace()
        try:
            for change in changes:
                if self._current(change.followed.id) is change.followed:
                    change.followed.log.lease.grant(truncates=change.truncates)
                    leased.append(change)
                else:  # it changed its role or its log since the answer was looked at
                    self._dropped(change.followed.id)
                if pace.is_step_over(_UNITS):
                    yield None
            now_ms = self._clock.wall_ms()
            if self._is_short(leased):
                carry_out(leased, now_ms)
            else:
                yield OnPool(self._pool, carry_out, leased, now_ms)
        finally:
            for change in leased:
                change.followed.log.lease.take_back()
        for change in leased:
            if self._is_led(change.followed):
                self._publish(change)
            else:
                self._dropped(change.followed.id)
            if pace.is_step_over(_UNITS):
                yield None

    @staticmethod
    def _is_short(changes: Sequence[LogChange]) -> bool:
        """True if the append takes less time than its way to a thread and back."""
        size_bytes = 0
        for change in changes:
            if change.truncates or not isinstance(change.decision, Append):
                return False
            size_bytes += len(change.decision.answer.records)
        return len(changes) <= AT_ONCE_MAX and size_bytes <= AT_ONCE_BYTES

    def _publish(self, change: LogChange) -> None:
        followed, result = change.followed, change.result
        if isinstance(result, Exception):
            self._put_off(followed, after_error(result, followed))
        elif isinstance(change.decision, Append):
            assert isinstance(result, Appended)
            if result.size_bytes:
                followed.partition.counters.replication_bytes_in.value += result.size_bytes
                self._take_over(followed, change.decision.answer, result.size_bytes)
            elif result.ended is Ended.CUT:
                self._put_off(followed, Wait("the leader sends no whole batch", is_fault=True))
            else:
                self._put_off(followed, Wait("the leader sends what a later leader wrote"))
        else:
            self._publish_cut(change, result)

    def _publish_cut(self, change: LogChange, end: "Appended | int") -> None:
        followed, asked = change.followed, change.asked
        last_sent = f"broker={self.leader_id} {followed.name}"
        log.info(
            "log was cut: %s: from=%d to=%s for=%s", last_sent, asked.offset, end, change.decision
        )
        self._session.renew(followed.id)
        if (followed.log.log_end_offset, followed.log.last_fetched_epoch) == asked[1:3]:
            reason = f"the leader finds its log another one, and nothing to cut: {change.decision}"
            self._put_off(followed, Wait(reason, is_fault=True))
        else:
            self._ask(followed)

    def _take_over(self, followed: Followed, answer: PartitionAnswer, new_bytes: int = 0) -> None:
        """Publish the leader's statement on its log, and fetch on."""
        try:
            if followed.partition.follow(
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
                heard=self._heard,
                new_bytes=new_bytes,
            ):
                self._starts[followed.id] = followed
        except KafkaError as error:
            self._put_off(followed, after_error(error, followed))
            return
        following = followed.following
        self._bootstraps.forget(followed.partition)  # it is fetched, with or without a bootstrap
        if following.went_well():
            self.failed.pop(followed.id, None)
            log.info("partition is followed again: %s", followed.name)
        following.lag = max(0, answer.high_watermark - followed.log.log_end_offset)
        if following.lag:
            self.lags[followed.id] = following.lag
        else:
            self.lags.pop(followed.id, None)
        self._settings.throttle.took(followed.partition, new_bytes)
        self._ask_unless_throttled(followed)

    # -- requests

    def _ask_unless_throttled(self, followed: Followed) -> None:
        following = followed.following
        pause_ms = self._settings.throttle.pause_ms(followed.partition, following.lag)
        if not pause_ms:
            self._ask(followed)
            return
        self._session.forget(followed.id)
        followed.partition.unheard()
        following.hold(self._clock.monotonic_ms() + pause_ms)
        heappush(self._waits, (following.due_ms, followed.id))

    def _ask(self, followed: Followed) -> None:
        log = followed.log
        if followed.partition.durable and log.recovery_point < log.log_end_offset:
            self._unflushed[followed.id] = followed  # the leader counts records below the offset
            return
        asked = Asked(
            followed.following.leader_epoch,
            log.log_end_offset,
            log.last_fetched_epoch,
            self._kept_start(followed),
            log.high_watermark,
        )
        self._session.ask(followed.id, asked)

    def _kept_start(self, followed: Followed) -> int:
        """The durable log start, at most the log's: the leader relies on it."""
        directory = self._logs.directory_of(followed.name)
        kept = None if directory is None else directory.entry(LOG_STARTS, followed.name)
        return kept or 0

    def _put_off(self, followed: Followed, decision: Wait | Stop) -> None:
        following = followed.following
        self._session.forget(followed.id)
        followed.partition.unheard()
        if isinstance(decision, Stop):
            following.stop(decision)
            is_news = decision.is_failure
        else:
            now_ms, backoff_ms = self._clock.monotonic_ms(), self._settings.backoff_ms
            is_news = following.wait(decision, now_ms=now_ms, backoff_ms=backoff_ms)
            heappush(self._waits, (following.due_ms, followed.id))
        if following.is_failed:
            self.failed[followed.id] = HealthReason.NOT_FOLLOWED.line(
                partition=followed.name, why=decision.reason
            )
        if is_news:
            if following.is_failed:
                why = f"broker {self.leader_id} is not followed: {decision.reason}"
                log.error(HealthReason.NOT_FOLLOWED.text(partition=followed.name, why=why))
            else:
                text = "partition cannot be followed: broker=%d %s: %s"
                log.warning(text, self.leader_id, followed.name, decision.reason)

    def _end_waits(self, now_ms: int) -> Work[None]:
        pace = Pace()
        while self._waits and self._waits[0][0] <= now_ms:
            due_ms, partition_id = heappop(self._waits)
            followed = self._followed.get(partition_id)
            if followed is not None and followed.following.is_due(due_ms):
                self._ask_unless_throttled(followed)
            if pace.is_step_over(_UNITS):
                yield None

    def _keep_starts(self) -> Work[None]:
        """Make raised log starts durable, then send them."""
        if not self._starts:
            return
        starts, self._starts = self._starts, {}
        kept = {one.name: one.log.log_start_offset for one in starts.values()}
        failed = yield OnPool(self._pool, self._logs.keep_log_starts, list(kept))
        pace = Pace()
        for followed in starts.values():
            if self._is_led(followed) and followed.name not in failed:
                followed.log.clip_chain(kept[followed.name])
                if followed.following.standing is Standing.ASKED:
                    self._ask(followed)
            if pace.is_step_over(_UNITS):
                yield None

    def _flush_durable(self) -> Work[None]:
        """Fsync the logs of durable topics, then fetch on."""
        while self._unflushed:
            flushing, self._unflushed = list(self._unflushed.values()), {}
            flushed = yield OnPool(self._pool, self._flush_each, [one.log for one in flushing])
            for followed, error in zip(flushing, flushed, strict=True):
                if not self._is_led(followed) or followed.following.standing is not Standing.ASKED:
                    continue
                if error is not None:
                    self._put_off(followed, after_error(error, followed))
                else:
                    self._ask(followed)

    def _flush_each(self, logs: Sequence[PartitionLog]) -> list[Exception | None]:
        """Fsync in parallel, so that the disk merges the writes."""
        errors: list[Exception | None] = []
        for done in side_by_side(self._commit, [one.flush for one in logs]):
            error = done.exception()
            assert error is None or isinstance(error, Exception)
            errors.append(error)
        return errors

    # -- offsets that the leader does not have

    def _settle_ranges(self, asking: Sequence[Followed], todo: _ToDo) -> Work[None]:
        """Ask for the range of the leader's logs, and continue there."""
        ranges = yield from leader_ranges(
            self._connection,
            {one.name: one.following.leader_epoch for one in asking},
            node_id=self._settings.terms.node_id,
            timeout_ms=self._settings.timeout_ms,
        )
        todo.changes.clear()
        for followed in asking:
            if self._current(followed.id) is not followed:
                self._dropped(followed.id)
                continue
            theirs = ranges[followed.name]
            if isinstance(theirs, Wait):
                self._put_off(followed, theirs)
                continue
            own = followed.log
            decision = after_range(
                theirs, log_start=own.log_start_offset, log_end=own.log_end_offset
            )
            self._to_change(followed, decision, todo)
        yield from self._change(todo.changes)

    # -- offsets that the leader has only in the remote tier

    def _settle_moved(self, asking: Sequence[Followed], ends: Mapping[Followed, int]) -> Work[None]:
        """Ask for the leader's local starts, and have the state before them built."""
        starts = yield from self._local_starts(asking, EARLIEST_LOCAL)
        if self._settings.from_last_tiered():
            empty = [one for one in asking if one.log.log_start_offset == one.log.log_end_offset]
            further = yield from self._local_starts(empty, EARLIEST_PENDING_UPLOAD)
            for name, pending in further.items():
                local = starts[name]
                if isinstance(local, LocalStart) and isinstance(pending, LocalStart):
                    starts[name] = max(local, pending)
        changes: list[LogChange] = []
        for followed in asking:
            if self._current(followed.id) is not followed:
                self._dropped(followed.id)
                continue
            theirs = starts[followed.name]
            decision: Begin | Build | Wait = (
                theirs
                if isinstance(theirs, Wait)
                else after_local_start(theirs, log_end=ends[followed])
            )
            if isinstance(decision, Wait):
                self._put_off(followed, decision)
            elif isinstance(decision, Begin):
                changes.append(LogChange(followed, decision, self._session.last_sent[followed.id]))
            else:
                self._build(followed, decision)
        yield from self._change(changes)

    def _local_starts(
        self, asking: Sequence[Followed], timestamp: int
    ) -> Work[dict[TopicPartition, LocalStart | Wait]]:
        return leader_local_starts(
            self._connection,
            {one.name: one.following.leader_epoch for one in asking},
            timestamp,
            node_id=self._settings.terms.node_id,
            timeout_ms=self._settings.timeout_ms,
        )

    def _build(self, followed: Followed, decision: Build) -> None:
        """Have the log begin elsewhere; all other partitions continue meanwhile."""
        self._session.forget(followed.id)
        followed.partition.unheard()
        followed.following.build()
        bootstrap = TierBootstrap(
            followed.partition,
            decision.theirs,
            is_current=lambda: self._is_led(followed),
            ended=lambda wait: self._built(followed, wait),
        )
        self._bootstraps.begin(bootstrap)

    def _built(self, followed: Followed, outcome: Wait | Stop | None) -> None:
        """Continue at the log's new begin after a bootstrap, or try again later."""
        followed.following.built()
        if not self._is_led(followed):
            return  # `follow` fetches it, if this broker follows it again
        if outcome is None:
            self._ask(followed)
            self.keep_log_start(followed.partition)
        else:
            self._put_off(followed, outcome)
        self._continue_soon()


def _id_of(partition: Partition) -> PartitionId:
    return partition.topic_id, partition.partition


def _read(answer: Answer) -> Steps[FetchAnswer]:
    frame = answer.frame
    assert isinstance(frame, memoryview)
    return (yield from walked(frame, answer.body_position()))
