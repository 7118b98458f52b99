"""The metadata manager: a state machine between a topic and its callers.

It reads the topic, validates its records, and answers writes when they are read back.

One thread calls `turn` again and again; any thread calls the other methods. A turn never holds the
lock while it waits for the port, and completes futures after it has released the lock. Without
threads and with a manual clock it is deterministic, which the simulation uses.

Promises (docs/tiering.md §2). A write is done when it was read back at its place and accepted. A
write of unknown outcome ends its ownership. An owner is ready when its barrier was read back. A
cache that the topic does not confirm is dropped; with it all roles in that metadata partition stop
being ready.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import RLock

from kafka_protocol.types import TopicIdPartition
from rlmm import records
from rlmm.api import (
    LOWEST_FENCE,
    REMOVER_FENCE,
    Fence,
    MetadataError,
    MetadataNotReadyError,
    MetadataRefusedError,
    MetadataWriteTimeoutError,
    PartitionDeleteState,
)
from rlmm.barrier import barrier
from rlmm.events import MetadataEvent
from rlmm.lifecycle import PartitionFacts, Verdict
from rlmm.store import MetadataStore, PartitionKey, partition_key
from rlmm.topic_based.asked_roles import AskedRoles
from rlmm.topic_based.lookups import Lookups, home_of
from rlmm.topic_based.reader import ReadCounts, Stretch, TopicReader, sort_events
from rlmm.topic_based.roles import Role, Stage, Tracked
from rlmm.topic_based.settings import ManagerSettings
from rlmm.topic_based.topic_port import (
    Appended,
    AppendResult,
    Diverged,
    TopicEvent,
    TopicPort,
    Unreadable,
)
from rlmm.topic_based.view_cache import ViewCache
from rlmm.topic_based.writes import Write
from runtime.clock import Clock
from runtime.health_reasons import HEALTHY
from runtime.incidents import Incident
from runtime.rng import Rng

log = logging.getLogger(__name__)

BARRIERS_COST_MAX, BARRIER_COST = 8_000, 50
"""Bound of the barriers of one slice, in visited segments: some 20 ms under the lock."""

ROLES_MAX = 1_000
"""Roles begun in one slice: some 20 ms under the lock."""

_BUSY_WAIT_MS = 5
_IDLE_WAIT_MS = 250
_STREAM_MS = 1_000
"""A caller that asks to be caught up twice within this time, such as a consumer at a follower, is
expected again. No event ends a wait early, so each of its reads would take as long as an idle wait.
The passes of followed partitions ask only once an interval: they do not keep the thread busy."""


def running_future() -> "Future[None]":
    """A future that its holder cannot cancel: the write is under way."""
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()
    return done


def complete(done: "Future[None]", error: Exception | None) -> None:
    """Complete a future, unless it is done."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


class Completions:
    """Calls that wait until the engine has released its lock; not thread-safe."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def add(self, call: Callable[[], None]) -> None:
        """Add a call."""
        self._calls.append(call)

    def succeed(self, done: "Future[None] | None") -> None:
        """Complete a future with success; None: no caller waits."""
        if done is not None and not done.done():
            self._calls.append(partial(complete, done, None))

    def fail(self, done: "Future[None] | None", error: Exception) -> None:
        """Complete a future with an error; None: no caller waits."""
        if done is not None and not done.done():
            self._calls.append(partial(complete, done, error))

    def take(self) -> list[Callable[[], None]]:
        """Remove and return all of them, to be called now."""
        calls, self._calls = self._calls, []
        return calls


class WrittenPairs:
    """Fences under which records were written, by metadata partition; not thread-safe."""

    __slots__ = ("_spent", "_written")

    def __init__(self) -> None:
        self._written: dict[int, dict[PartitionKey, Fence]] = {}
        self._spent: dict[int, dict[PartitionKey, Fence]] = {}

    def wrote(self, home: int, partition: PartitionKey, fence: Fence) -> None:
        """A record under `fence` went to the port."""
        self._written.setdefault(home, {})[partition] = fence

    def lost(self, home: int) -> None:
        """Call after a metadata partition lost records; the fences used in it count as spent.

        Records under these fences, and the barrier before them, may be lost, while records that
        are still under way land. A barrier of the same fence cannot keep those out (model story
        H10).
        """
        self._spent.setdefault(home, {}).update(self._written.get(home, {}))

    def spent(self, home: int, partition: PartitionKey) -> Fence:
        """The fence at or below which no barrier is written any more."""
        return self._spent.get(home, {}).get(partition, LOWEST_FENCE)

    def forget(self, home: int, partition: PartitionKey) -> None:
        """The deletion of the partition is complete: it has no owner any more."""
        self._written.get(home, {}).pop(partition, None)
        self._spent.get(home, {}).pop(partition, None)


class MetadataEngine:
    """Follows metadata partitions, owns user partitions, writes records."""

    def __init__(
        self,
        port: TopicPort,
        store: MetadataStore,
        partition_count: int,
        settings: ManagerSettings,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._port, self._store = port, store
        self.partition_count, self._settings = partition_count, settings
        self._clock, self._rng = clock, rng
        self._lock = RLock()
        self._views = ViewCache(store)
        self.asked = AskedRoles()  # any thread may request a role there without waiting for a turn
        self._roles = self.asked.begun
        self._tracked: dict[int, Tracked] = {}
        self.lookups = Lookups(
            self._lock, store, self._views, self._roles, self._tracked, partition_count
        )
        self._assignment_changed = False
        self._busy_until_ms = 0
        self._ends = Completions()
        self._reader = TopicReader(store, clock)
        self._pairs = WrittenPairs()
        self._on_lost_records: list[Callable[[TopicIdPartition], None]] = []

    @property
    def counts(self) -> ReadCounts:
        """Records read, skipped and refused since the start."""
        return self._reader.counts

    # ------------------------------------------------------------------ roles

    def catch_up(self, partition: TopicIdPartition) -> "Future[None]":
        """Completes once the records that the topic holds at the call are read."""
        done = running_future()
        with self._locked():
            role = self._roles.get(partition_key(partition))
            if role is None or not role.is_ready:
                self._ends.fail(done, MetadataNotReadyError(f"not owned nor followed: {partition}"))
            else:
                now_ms = self._clock.monotonic_ms()
                if role.asked_ms >= 0 and now_ms < role.asked_ms + _STREAM_MS:
                    self._busy_until_ms = now_ms + _STREAM_MS
                role.asked_ms = now_ms
                role.catching_up.append(done)
                reads = self._tracked[role.home].end_reads
                reads.want(role, lambda: self._caught_up(role, done))
        return done

    def carry(self, partition: TopicIdPartition, fence: Fence, log_start: int) -> None:
        """Carry `log_start` in each further record of this owner."""
        with self._lock:
            role = self._roles.get(partition_key(partition))
            if role is not None and role.fence == fence and role.is_ready:
                role.log_start = max(role.log_start, log_start)

    def on_lost_records(self, listener: Callable[[TopicIdPartition], None]) -> None:
        """Call `listener` for each owned or followed partition of which the topic lost records."""
        with self._lock:
            self._on_lost_records.append(listener)

    def lead(self, metadata_partitions: Iterable[int]) -> None:
        """Set the metadata partitions that this broker leads: they are read for the remover."""
        with self._locked():
            wanted = set(metadata_partitions)
            for number in wanted:
                tracked = self._track(number)
                if not tracked.led:
                    tracked.led = True
                    self._read_to_end(tracked, None)
            for number, tracked in list(self._tracked.items()):
                if tracked.led and number not in wanted:
                    tracked.led = tracked.fresh_for_remover = False
                    tracked.end_reads.drop(tracked)
                    self._views.deletions.drop(number)
                    self._maybe_untrack(number)

    # ------------------------------------------------------------------ writes

    def write(self, event: MetadataEvent) -> "Future[None]":
        """Send a record of its owner, or of the remover, to the port."""
        done = running_future()
        with self._locked():
            key = partition_key(event.topic_id_partition)
            tracked = self._tracked.get(self._home(key))
            role = self._roles.get(key)
            fence = event.stamp.fence
            if fence == REMOVER_FENCE:
                allowed, role = tracked is not None and tracked.may_validate, None
            else:
                allowed = role is not None and role.fence == fence and role.is_ready
            if not allowed:
                error = MetadataNotReadyError(f"not ours under {fence}: {event.topic_id_partition}")
                self._ends.fail(done, error)
            else:
                self._append(event, role, done)
        return done

    # ------------------------------------------------------------------ the loop's side

    def turn(self) -> None:
        """Do the due work: assign, read, validate, answer. Called by one thread."""
        self._take_roles()
        self._assign()
        self._ask_ends()
        events = self._port.poll(self._wait_ms())
        with self._locked():
            self._take(events)
            self._advance_roles()
            self._advance_end_reads()
            self._settle_writes()

    def abandon(self, error: MetadataError) -> None:
        """Fail all pending futures; `turn` is not called again."""
        with self._locked():
            for role in list(self._roles.values()):
                self._end_role(role, str(error))
            self._roles.clear()
            for tracked in self._tracked.values():
                for write in tracked.writes.take_of(None):
                    self._ends.fail(write.done, MetadataWriteTimeoutError(str(error)))

    def _take_roles(self) -> None:
        """Begin requested roles, or release; former roles of these partitions end."""
        with self._locked():
            taken = 0
            while taken < ROLES_MAX and (next_one := self.asked.take()) is not None:
                taken += 1
                former, wanted = next_one
                if former is not None:
                    self._end_role(former, "released or superseded")
                if isinstance(wanted, Role):
                    self._begin(wanted)
                else:  # the cached state stays
                    self._maybe_untrack(self._home(partition_key(wanted)))

    def _begin(self, role: Role) -> None:
        role.home = self._home(role.key)
        tracked = self._track(role.home)
        tracked.begin(role)
        if role.fence is None:
            self._read_to_end(tracked, role)

    def _assign(self) -> None:
        with self._lock:
            if not self._assignment_changed:
                return
            self._assignment_changed = False
            positions = {number: tracked.position for number, tracked in self._tracked.items()}
        self._port.assign(positions)

    def _ask_ends(self) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            for number, tracked in self._tracked.items():
                tracked.end_reads.ask(self._port, number, tracked.position.offset, now_ms)

    def _wait_ms(self) -> int:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            busy = (
                self.asked
                or now_ms < self._busy_until_ms
                or any(tracked.is_busy for tracked in self._tracked.values())
            )
        return _BUSY_WAIT_MS if busy else _IDLE_WAIT_MS

    def _take(self, events: list[TopicEvent]) -> None:
        taken = sort_events(events)
        for diverged in taken.diverged:
            self._start_over(diverged)
        for number, stretch in taken.stretches.items():
            if number in self._tracked:
                self._consume(number, self._tracked[number], stretch)
        for unreadable in taken.unreadable.values():
            self._stop_at(unreadable)

    def _consume(self, number: int, tracked: Tracked, stretch: Stretch) -> None:
        changes = self._reader.consume(number, tracked, stretch)
        tracked.unreadable = HEALTHY
        if changes is None:
            return
        self._views.apply(number, changes)
        for key, facts in changes.facts.items():
            role = self._roles.get(key)
            if role is not None and role.fence is not None:
                role.unclean_epoch = max(role.unclean_epoch, facts.unclean_epoch)
                role.deposed = role.deposed or facts.fence > role.fence
            if facts.delete_state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
                self._pairs.forget(number, key)

    def _start_over(self, event: Diverged) -> None:
        tracked = self._tracked.get(event.partition)
        if tracked is None:
            return
        log.error(Incident.METADATA_LOST.line(number=event.partition, reason=event.reason))
        self._store.drop(event.partition)
        self._views.drop(event.partition)
        tracked.position = self._store.position(event.partition)
        tracked.verdicts.clear()
        tracked.end_reads.start_over()
        self._assignment_changed = True
        self._pairs.lost(event.partition)
        self._doubt(tracked, "the metadata topic lost records")
        for role in tracked.roles.values():
            for listener in self._on_lost_records:
                self._ends.add(partial(listener, role.partition))

    def _stop_at(self, event: Unreadable) -> None:
        """Stop all validation by a part of the records: by the remover, owners and followers."""
        tracked = self._tracked.get(event.partition)
        if tracked is None or tracked.unreadable == event.reason:
            return
        tracked.unreadable = unhealthy = event.reason
        log.error("%s", unhealthy)
        self._doubt(tracked, event.reason)

    def _doubt(self, tracked: Tracked, reason: str) -> None:
        """Use the cached state only after its end was reached again."""
        tracked.caught_up = tracked.fresh_for_remover = False
        if tracked.led:
            self._read_to_end(tracked, None)
        for role in tracked.roles.values():
            if role.stage is Stage.CATCHING_UP:
                continue  # an owner that has written nothing yet
            if role.fence is None:
                tracked.begin(role)
                self._read_to_end(tracked, role)
            else:
                self._end_ownership(role, reason)
        for write in tracked.writes.take_of(None):
            self._ends.fail(write.done, MetadataWriteTimeoutError(reason))

    def _advance_roles(self) -> None:
        # One catch-up is enough before a barrier: its read-back includes all records before it.
        budget = BARRIERS_COST_MAX
        for tracked in (each for each in self._tracked.values() if each.caught_up):
            while tracked.without_barrier:
                if budget <= 0:
                    return  # the next slice continues; callers get the lock in between
                _, role = tracked.without_barrier.popitem(last=False)
                if role.fence is not None and not role.superseded:
                    budget -= self._write_barrier(role, role.fence)

    def _advance_end_reads(self) -> None:
        for tracked in self._tracked.values():
            if tracked.caught_up:  # else the log has not confirmed the position yet
                for read in tracked.end_reads.take_reached(tracked.position.offset):
                    read.reached()

    def _read_to_end(self, tracked: Tracked, follower: Role | None) -> None:
        """Let a follower, or else the remover, continue when the present end was reached."""

        def reached() -> None:
            if follower is None:
                tracked.fresh_for_remover = True
            else:
                follower.stage = Stage.READY
                self._ends.succeed(follower.done)

        of = tracked if follower is None else follower
        if follower is None:  # waiters for a follower's catch-up keep waiting
            tracked.end_reads.drop(of)
        tracked.end_reads.want(of, reached)

    def _caught_up(self, role: Role, done: "Future[None]") -> None:
        role.catching_up.remove(done)
        self._ends.succeed(done)

    def _write_barrier(self, role: Role, fence: Fence) -> int:
        """Write a barrier, or refuse to; returns its cost in visited segments."""
        number = role.home
        facts = self._store.facts(number, role.key) or PartitionFacts(role.partition)
        spent = self._pairs.spent(number, role.key)
        if facts.fence > fence or spent >= fence:
            role.stage = Stage.ENDED
            there = max(facts.fence, spent)
            error = f"{there} is there already, not below {fence}: {role.partition}"
            self._ends.fail(role.done, MetadataRefusedError(error, there))
            return BARRIER_COST
        role.stage = Stage.BARRIER
        role.unclean_epoch = max(role.unclean_epoch, facts.unclean_epoch)
        newest = self._store.newest_entry(number, role.key)
        events = barrier(
            role.partition,
            None if newest is None else newest.metadata,
            fence,
            new_id=self._rng.uuid(),
            broker_id=self._settings.node_id,
            now_ms=self._clock.wall_ms(),
            metadata_offset=role.metadata_offset,
            unclean_epoch=role.unclean_epoch,
        )
        for event in events:
            self._append(event, role, None, ends_barrier=event is events[-1])
        return BARRIER_COST + facts.live_count

    def _append(
        self,
        event: MetadataEvent,
        role: Role | None,
        done: "Future[None] | None",
        *,
        ends_barrier: bool = False,
    ) -> None:
        number = self._home(partition_key(event.topic_id_partition)) if role is None else role.home
        if role is not None:
            event = role.stamped(event)
            self._pairs.wrote(number, role.key, event.stamp.fence)
        deadline_ms = self._clock.monotonic_ms() + self._settings.consume_wait_ms
        write = Write(event, role, done, deadline_ms, ends_barrier)
        writes = self._tracked[number].writes
        writes.add(write)

        def on_done(result: AppendResult) -> None:
            with self._lock:
                if isinstance(result, Appended):
                    write.offset = result.offset
                else:
                    write.failure, write.maybe_written = result.reason, result.maybe_written
                writes.answered(write)

        self._port.append(number, records.encode(event), on_done)

    def _settle_writes(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for tracked in self._tracked.values():
            for write in tracked.writes.take_due(tracked.position.offset, now_ms):
                if write in tracked.writes:  # the end of an ownership removes several at once
                    self._settle(tracked, write, now_ms)
            if not tracked.writes:
                tracked.verdicts.clear()

    def _settle(self, tracked: Tracked, write: Write[Role], now_ms: int) -> None:
        verdict = None if write.offset is None else tracked.verdicts.pop(write.offset, None)
        if verdict is not None:
            tracked.writes.remove(write)
            self._settle_read_back(write, verdict)
        elif write.failure is not None and not write.maybe_written:
            tracked.writes.remove(write)
            self._ends.fail(write.done, MetadataError(f"not written: {write.failure}"))
            if write.role is not None and write.role.stage is Stage.BARRIER:
                self._end_ownership(write.role, write.failure)
        else:
            reason = write.lost(tracked.position.offset, now_ms)
            if reason is not None:
                self._give_up(tracked, write, reason)

    def _settle_read_back(self, write: Write[Role], verdict: Verdict) -> None:
        role = write.role
        if role is not None and role.stage is Stage.BARRIER:
            if verdict is Verdict.FENCED:
                role.stage = Stage.ENDED
                facts = self._store.facts(role.home, role.key)
                higher = None if facts is None else facts.fence
                error = f"fenced by {higher}: {role.partition}"
                self._ends.fail(role.done, MetadataRefusedError(error, higher))
            elif write.ends_barrier:
                role.stage = Stage.READY
                self._ends.succeed(role.done)
        elif verdict is Verdict.ACCEPTED:
            self._ends.succeed(write.done)
        else:
            refused = MetadataRefusedError(f"{verdict.value}: {write.event.topic_id_partition}")
            self._ends.fail(write.done, refused)

    def _give_up(self, tracked: Tracked, write: Write[Role], reason: str) -> None:
        tracked.writes.remove(write)
        self._ends.fail(write.done, MetadataWriteTimeoutError(f"outcome unknown: {reason}"))
        if write.role is not None:
            self._end_ownership(write.role, reason)

    def _end_ownership(self, role: Role, reason: str) -> None:
        """End an ownership whose records in the topic are uncertain until a new barrier."""
        if role.stage is not Stage.ENDED:
            log.warning(
                "ownership ends: partition=%s reason=%s", role.partition.topic_partition, reason
            )
        role.stage = Stage.ENDED
        error = MetadataWriteTimeoutError(f"outcome unknown: {reason}")
        tracked = self._tracked[role.home]
        tracked.end_reads.drop(role)
        for done in (role.done, *role.catching_up):
            self._ends.fail(done, error)
        for write in tracked.writes.take_of(role):
            self._ends.fail(write.done, error)

    # ------------------------------------------------------------------ small things

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, and complete futures after releasing it."""
        with self._lock:
            try:
                yield
            finally:
                completions = self._ends.take()
        for call in completions:
            call()

    def _home(self, key: PartitionKey) -> int:
        return home_of(key, self.partition_count)

    def _track(self, number: int) -> Tracked:
        tracked = self._tracked.get(number)
        if tracked is None:
            tracked = self._tracked[number] = Tracked(self._store.position(number))
            self._assignment_changed = True
        return tracked

    def _end_role(self, role: Role, reason: str) -> None:
        role.stage = Stage.ENDED
        error = MetadataNotReadyError(f"{reason}: {role.partition}")
        for done in (role.done, *role.catching_up):
            self._ends.fail(done, error)
        tracked = self._tracked.get(role.home)
        if tracked is None:
            return  # the store failed before the role began
        for write in tracked.writes.take_of(role):
            self._ends.fail(write.done, MetadataWriteTimeoutError(f"outcome unknown: {reason}"))
        tracked.end_reads.drop(role)
        tracked.roles.pop(role.key, None)
        tracked.without_barrier.pop(role.key, None)

    def _maybe_untrack(self, number: int) -> None:
        tracked = self._tracked.get(number)
        if tracked is not None and not tracked.roles and not tracked.led:
            for write in tracked.writes:
                self._ends.fail(write.done, MetadataWriteTimeoutError("outcome unknown: released"))
            del self._tracked[number]
            self._assignment_changed = True
