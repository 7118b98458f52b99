"""The metadata manager: a state machine between a topic and its callers.

It reads the topic, judges what it reads, and answers writes when they are read back.

One thread calls `turn` again and again; any thread calls the other methods. A turn never holds the
lock while it waits for the port, and completes futures after letting go of the lock. Without
threads and with a manual clock it is deterministic, which is how the simulation drives it.

Promises (docs/tiering.md §2): a write is done when it was read back at its place and accepted; a
write of unknown outcome ends its ownership; an owner is ready when its barrier was read back; a
cache that the topic does not confirm is dropped, and with it every readiness in that metadata
partition.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import RLock

from kafka_protocol.types import TopicIdPartition
from rlmm import records
from rlmm.api import (
    REMOVER_FENCE,
    Fence,
    MetadataError,
    MetadataNotReadyError,
    MetadataRefusedError,
    MetadataWriteTimeoutError,
    PartitionDeletion,
)
from rlmm.barrier import barrier
from rlmm.events import MetadataEvent
from rlmm.lifecycle import SegmentEntry, Verdict, deletion_of
from rlmm.partition_view import PartitionView
from rlmm.store import MetadataStore, PartitionKey, partition_key
from rlmm.topic_based.reader import ReadCounts, TopicReader
from rlmm.topic_based.roles import Role, Stage, Tracked, Write
from rlmm.topic_based.topic_port import (
    Appended,
    AppendResult,
    Diverged,
    ReachedEnd,
    TopicEvent,
    TopicPort,
    TopicRecord,
    metadata_partition_for,
)
from rlmm.topic_based.view_cache import ViewCache
from rsm_plugins.segment import RemoteLogSegmentId
from runtime.clock import Clock
from runtime.dice import Dice

_log = logging.getLogger(__name__)

_BUSY_WAIT_MS = 5
_IDLE_WAIT_MS = 250


class MetadataEngine:
    """Follows metadata partitions, owns user partitions, writes records."""

    def __init__(
        self,
        port: TopicPort,
        store: MetadataStore,
        partition_count: int,
        *,
        node_id: int,
        consume_wait_ms: int,
        clock: Clock,
        dice: Dice,
    ) -> None:
        self._port = port
        self._store = store
        self.partition_count = partition_count
        self._node_id = node_id
        self._consume_wait_ms = consume_wait_ms
        self._clock = clock
        self._dice = dice
        self._lock = RLock()
        self._views = ViewCache(store)
        self._roles: dict[PartitionKey, Role] = {}
        self._tracked: dict[int, Tracked] = {}
        self._assignment_changed = False
        self._completions: list[Callable[[], None]] = []
        self._reader = TopicReader(store, clock)

    @property
    def counts(self) -> ReadCounts:
        """Records read, skipped and refused since the start."""
        return self._reader.counts

    # ------------------------------------------------------------------ roles

    def take_role(self, role: Role) -> None:
        """Begin to own or follow; a former role in the partition ends."""
        with self._locked():
            tracked = self._track(self._home(role.key))
            self._drop_role(role.key, "superseded")
            self._roles[role.key] = role
            tracked.roles.add(role.key)

    def release(self, partition: TopicIdPartition) -> None:
        """End the role in a partition; what is cached stays."""
        with self._locked():
            key = partition_key(partition)
            self._drop_role(key, "released")
            self._maybe_untrack(self._home(key))

    def lead(self, metadata_partitions: Iterable[int]) -> None:
        """Say which metadata partitions this broker leads: they are read for the remover."""
        with self._locked():
            wanted = set(metadata_partitions)
            for number in wanted:
                tracked = self._track(number)
                tracked.led = True
            for number, tracked in list(self._tracked.items()):
                if tracked.led and number not in wanted:
                    tracked.led = False
                    self._maybe_untrack(number)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """See RemoteLogMetadataManager."""
        with self._lock:
            role = self._roles.get(partition_key(partition))
            return role is not None and role.stage is Stage.READY and not role.deposed

    # ------------------------------------------------------------------ writes

    def write(self, event: MetadataEvent) -> "Future[None]":
        """Hand a record to the port for its owner, or for the remover."""
        done = running_future()
        with self._locked():
            key = partition_key(event.topic_id_partition)
            tracked = self._tracked.get(self._home(key))
            role = self._roles.get(key)
            fence = event.stamp.fence
            if fence == REMOVER_FENCE:
                allowed, role = tracked is not None and self._may_judge(tracked), None
            else:
                allowed = role is not None and role.fence == fence and role.stage is Stage.READY
            if not allowed or (role is not None and role.deposed):
                error = MetadataNotReadyError(f"not ours under {fence}: {event.topic_id_partition}")
                self._fail(done, error)
            else:
                self._append(event, role, done)
        return done

    # ------------------------------------------------------------------ look-ups

    @contextmanager
    def view(self, partition: TopicIdPartition) -> Iterator[PartitionView]:
        """The view of a partition, under the lock.

        Raises:
            MetadataNotReadyError: what is cached of it may be too old to answer.
        """
        key = partition_key(partition)
        with self._lock:
            yield self._views.get(self._readable_home(key), key)

    def entry(self, id: RemoteLogSegmentId) -> SegmentEntry | None:
        """A live segment; raises as `view`."""
        key = partition_key(id.topic_id_partition)
        with self._lock:
            return self._store.entry(self._readable_home(key), key, id.id)

    def led_partitions(self) -> list[PartitionDeletion]:
        """See DeletedTopics."""
        with self._lock:
            return [
                deletion_of(facts)
                for number, tracked in self._tracked.items()
                if self._may_judge(tracked)
                for facts in self._store.all_facts(number)
            ]

    def leads_all(self) -> bool:
        """See DeletedTopics."""
        with self._lock:
            judged = sum(self._may_judge(tracked) for tracked in self._tracked.values())
            return judged == self.partition_count

    def deletion(self, partition: TopicIdPartition) -> PartitionDeletion | None:
        """See DeletedTopics."""
        key = partition_key(partition)
        with self._lock:
            facts = self._store.facts(self._readable_home(key), key)
        return None if facts is None else deletion_of(facts)

    # ------------------------------------------------------------------ the loop's side

    def turn(self) -> None:
        """Do what is due: assign, read, judge, answer. Called by one thread."""
        self._assign()
        events = self._port.poll(self._wait_ms())
        with self._locked():
            self._take(events)
            self._advance_roles()
            self._settle_writes()

    def abandon(self, error: MetadataError) -> None:
        """Fail whatever is pending; the engine will not turn again."""
        with self._locked():
            for key in list(self._roles):
                self._drop_role(key, str(error))
            for tracked in self._tracked.values():
                for write in tracked.writes:
                    self._fail(write.done, MetadataWriteTimeoutError(str(error)))
                tracked.writes.clear()

    def _assign(self) -> None:
        with self._lock:
            if not self._assignment_changed:
                return
            self._assignment_changed = False
            positions = {number: tracked.position for number, tracked in self._tracked.items()}
        self._port.assign(positions)

    def _wait_ms(self) -> int:
        with self._lock:
            busy = any(
                role.stage in {Stage.CATCHING_UP, Stage.BARRIER} for role in self._roles.values()
            ) or any(tracked.writes for tracked in self._tracked.values())
        return _BUSY_WAIT_MS if busy else _IDLE_WAIT_MS

    def _take(self, events: list[TopicEvent]) -> None:
        stretches: dict[int, list[TopicRecord | ReachedEnd]] = {}
        for event in events:
            if isinstance(event, Diverged):
                stretches.pop(event.partition, None)
                self._start_over(event)
            else:
                stretches.setdefault(event.partition, []).append(event)
        for number, stretch in stretches.items():
            if number in self._tracked:
                self._consume(number, self._tracked[number], stretch)

    def _consume(
        self, number: int, tracked: Tracked, stretch: list[TopicRecord | ReachedEnd]
    ) -> None:
        changes = self._reader.consume(number, tracked, stretch)
        if changes is None:
            return
        self._views.apply(number, changes)
        for key, facts in changes.facts.items():
            role = self._roles.get(key)
            if role is not None and role.fence is not None and facts.fence > role.fence:
                role.deposed = True

    def _start_over(self, event: Diverged) -> None:
        tracked = self._tracked.get(event.partition)
        if tracked is None:
            return
        _log.error(
            "the metadata topic does not confirm what was read, reading again: partition=%d %s",
            event.partition,
            event.reason,
        )
        self._store.drop(event.partition)
        self._views.drop(event.partition)
        tracked.position = self._store.position(event.partition)
        tracked.caught_up = False
        tracked.verdicts.clear()
        self._assignment_changed = True
        for key in tracked.roles:
            role = self._roles[key]
            if role.fence is None:
                role.stage = Stage.CATCHING_UP
            elif role.stage is not Stage.CATCHING_UP:  # else it has written nothing yet
                self._end_ownership(role, "the metadata topic lost records")
        for write in [write for write in tracked.writes if write.role is None]:
            self._fail(write.done, MetadataWriteTimeoutError("the metadata topic lost records"))
            tracked.writes.remove(write)

    def _advance_roles(self) -> None:
        for role in list(self._roles.values()):
            caught_up = self._tracked[self._home(role.key)].caught_up
            if role.stage is not Stage.CATCHING_UP or not caught_up:
                continue
            if role.fence is None:
                role.stage = Stage.READY
                self._succeed(role.done)
            else:
                self._write_barrier(role, role.fence)

    def _write_barrier(self, role: Role, fence: Fence) -> None:
        number = self._home(role.key)
        facts = self._store.facts(number, role.key)
        if facts is not None and facts.fence > fence:
            role.stage = Stage.ENDED
            error = f"{facts.fence} is there already, above {fence}: {role.partition}"
            self._fail(role.done, MetadataRefusedError(error, facts.fence))
            return
        role.stage = Stage.BARRIER
        events = barrier(
            role.partition,
            (entry.metadata for entry in self._store.entries(number, role.key)),
            fence,
            new_id=self._dice.uuid(),
            broker_id=self._node_id,
            now_ms=self._clock.wall_ms(),
            metadata_offset=role.metadata_offset,
        )
        for event in events:
            self._append(event, role, None, ends_barrier=event is events[-1])

    def _append(
        self,
        event: MetadataEvent,
        role: Role | None,
        done: "Future[None] | None",
        *,
        ends_barrier: bool = False,
    ) -> None:
        number = self._home(partition_key(event.topic_id_partition))
        deadline_ms = self._clock.monotonic_ms() + self._consume_wait_ms
        write = Write(event, role, done, deadline_ms, ends_barrier)
        self._tracked[number].writes.append(write)

        def on_done(result: AppendResult) -> None:
            with self._lock:
                if isinstance(result, Appended):
                    write.offset = result.offset
                else:
                    write.failure, write.maybe_written = result.reason, result.maybe_written

        self._port.append(number, records.encode(event), on_done)

    def _settle_writes(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for tracked in self._tracked.values():
            for write in list(tracked.writes):
                if write in tracked.writes:  # the end of an ownership takes several at once
                    self._settle(tracked, write, now_ms)
            if not tracked.writes:
                tracked.verdicts.clear()

    def _settle(self, tracked: Tracked, write: Write, now_ms: int) -> None:
        verdict = None if write.offset is None else tracked.verdicts.pop(write.offset, None)
        if verdict is not None:
            tracked.writes.remove(write)
            self._settle_read_back(write, verdict)
        elif write.failure is not None and not write.maybe_written:
            tracked.writes.remove(write)
            self._fail(write.done, MetadataError(f"not written: {write.failure}"))
            if write.role is not None and write.role.stage is Stage.BARRIER:
                self._end_ownership(write.role, write.failure)
        else:
            reason = write.failure
            if write.offset is not None and tracked.position.offset > write.offset:
                reason = "its place was passed unseen"
            elif write.offset == -1:
                reason = "nobody knows its place"
            elif reason is None and now_ms >= write.deadline_ms:
                reason = "not read back in time"
            if reason is not None:
                self._give_up(tracked, write, reason)

    def _settle_read_back(self, write: Write, verdict: Verdict) -> None:
        role = write.role
        if role is not None and role.stage is Stage.BARRIER:
            if verdict is Verdict.FENCED:
                role.stage = Stage.ENDED
                facts = self._store.facts(self._home(role.key), role.key)
                higher = None if facts is None else facts.fence
                error = f"fenced by {higher}: {role.partition}"
                self._fail(role.done, MetadataRefusedError(error, higher))
            elif write.ends_barrier:
                role.stage = Stage.READY
                self._succeed(role.done)
        elif verdict is Verdict.ACCEPTED:
            self._succeed(write.done)
        else:
            refused = MetadataRefusedError(f"{verdict.value}: {write.event.topic_id_partition}")
            self._fail(write.done, refused)

    def _give_up(self, tracked: Tracked, write: Write, reason: str) -> None:
        tracked.writes.remove(write)
        self._fail(write.done, MetadataWriteTimeoutError(f"outcome unknown: {reason}"))
        if write.role is not None:
            self._end_ownership(write.role, reason)

    def _end_ownership(self, role: Role, reason: str) -> None:
        """Nobody knows what of ours is in the topic: only a new barrier can tell."""
        if role.stage is not Stage.ENDED:
            _log.warning(
                "ownership ends: partition=%s reason=%s", role.partition.topic_partition, reason
            )
        role.stage = Stage.ENDED
        error = MetadataWriteTimeoutError(f"outcome unknown: {reason}")
        self._fail(role.done, error)
        tracked = self._tracked[self._home(role.key)]
        for write in [write for write in tracked.writes if write.role is role]:
            tracked.writes.remove(write)
            self._fail(write.done, error)

    # ------------------------------------------------------------------ small things

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, and complete futures after letting go of it."""
        with self._lock:
            try:
                yield
            finally:
                completions, self._completions = self._completions, []
        for complete in completions:
            complete()

    def _succeed(self, done: "Future[None] | None") -> None:
        if done is not None and not done.done():
            self._completions.append(lambda: _complete(done, None))

    def _fail(self, done: "Future[None] | None", error: Exception) -> None:
        if done is not None and not done.done():
            self._completions.append(lambda: _complete(done, error))

    def _home(self, key: PartitionKey) -> int:
        return metadata_partition_for(TopicIdPartition(key[0], key[1], ""), self.partition_count)

    def _readable_home(self, key: PartitionKey) -> int:
        number = self._home(key)
        tracked = self._tracked.get(number)
        if tracked is None or not tracked.caught_up:
            raise MetadataNotReadyError(f"metadata partition {number} is not caught up")
        return number

    @staticmethod
    def _may_judge(tracked: Tracked) -> bool:
        return tracked.led and tracked.caught_up

    def _track(self, number: int) -> Tracked:
        tracked = self._tracked.get(number)
        if tracked is None:
            tracked = self._tracked[number] = Tracked(self._store.position(number))
            self._assignment_changed = True
        return tracked

    def _drop_role(self, key: PartitionKey, reason: str) -> None:
        role = self._roles.pop(key, None)
        if role is None:
            return
        tracked = self._tracked[self._home(key)]
        for write in [write for write in tracked.writes if write.role is role]:
            tracked.writes.remove(write)
            self._fail(write.done, MetadataWriteTimeoutError(f"outcome unknown: {reason}"))
        role.stage = Stage.ENDED
        self._fail(role.done, MetadataNotReadyError(f"{reason}: {role.partition}"))
        tracked.roles.discard(key)

    def _maybe_untrack(self, number: int) -> None:
        tracked = self._tracked.get(number)
        if tracked is not None and not tracked.roles and not tracked.led:
            for write in tracked.writes:
                self._fail(write.done, MetadataWriteTimeoutError("outcome unknown: released"))
            del self._tracked[number]
            self._assignment_changed = True


def running_future() -> "Future[None]":
    """A future that its holder cannot cancel: the write is under way."""
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()
    return done


def _complete(done: "Future[None]", error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
