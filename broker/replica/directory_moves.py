"""Replicas move from one log directory of this broker to another (KIP-113).

The steps of a move, and the state after a crash during each of them:

1. Pool: the future directory is made, then the client gets its answer. The next start begins the
   move again.
2. Pool: segments are copied, a piece at a time, while the replica is served. The same.
3. Pool: when little is missing, the log is rolled and leased, and the rest is copied. The same.
4. Pool: the log is renamed away, the copy takes its name and is opened. A start completes the swap.
5. Loop: the replica continues with the copy, and the metadata note the directory. A start finds the
   log in its new directory, and has that noted.

In steps 3 and 4 the replica answers NOT_LEADER_OR_FOLLOWER, and clients ask again. A leader keeps
its epoch, its followers and the reports of its tier.

Each target directory has a queue of moves: a disk that hangs stops its own queue only. The sum of
all copies is bounded by `replica.alter.log.dirs.io.max.bytes.per.second`.

DIFFERS: Kafka refuses moves while a log directory is offline, so that a partition never has future
logs in two directories. Here the marker of a future log names its source directory.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError
from local_log.manager.future_dirs import FoundFuture
from local_log.manager.log_dir import LogDir
from local_log.manager.log_dirs import LogManager
from local_log.manager.moving import LogMove, Step
from runtime.incidents import Incident
from runtime.ports import Ports
from runtime.work import OnPool, Runner, Until, Work, logged

log = logging.getLogger(__name__)

SWAP_BYTES: Final = 1 << 20
"""At this size the rest is copied while the log is leased."""
RETRY_MS: Final = 100
"""Pause before a log is tried again that cannot be leased, or whose files are being renamed."""
PAUSE_MS: Final = 1_000
"""The longest pause: after it the rate is read again, which may have changed."""
POOL: Final = "log-moves"
THREADS: Final = 4


class _MoveQueue:
    """The moves to one log directory; `at_work` is the one that is not waiting."""

    def __init__(self) -> None:
        self.waiting: deque[LogMove] = deque()
        self.at_work: LogMove | None = None
        self.runner: Runner | None = None


class DirectoryMoves:
    """The moves of one broker; use it from the event loop's thread only."""

    def __init__(
        self, logs: LogManager, replicas: ReplicaManager, ports: Ports, rate: Callable[[], int]
    ) -> None:
        """Move nothing yet; `rate`: the present setting, bytes a second, 0 for no limit."""
        self._logs, self._replicas, self._rate = logs, replicas, rate
        self._moves, self._clock, self._scheduler = logs.moves, ports.clock, ports.scheduler
        self._pool = ports.executors.pool(POOL, THREADS)
        self._queues: dict[LogDir, _MoveQueue] = {}
        self._one_at_a_time = asyncio.Lock()
        self._pauses: dict[Callable[[], None], None] = {}
        # Copied bytes not yet paid for by time at the rate; in thousandths of bytes.
        self._debt, self._paid_ms = 0, ports.clock.monotonic_ms()
        self._is_stopping = False

    # -- requests

    async def alter(self, tp: TopicPartition, path: str) -> None:
        """Have a replica move; returns when the move survives a crash.

        A move to the directory in which the replica is ends a move that is under way.

        Args:
            tp: The replica.
            path: Absolute, of a log directory of this broker. A replica that is not made yet will
                be made there.

        Raises:
            ApiError: LOG_DIR_NOT_FOUND: there is no such directory. REPLICA_NOT_AVAILABLE: no
                replica of the partition is here.
            KafkaStorageError: The directory or the replica is offline, or the disk is full.
            UnknownTopicOrPartition: There is no such partition.
        """
        target = next((d for d in self._logs.dirs if str(d.path.absolute()) == path), None)
        if target is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs of this broker")
        if not target.works:
            raise KafkaStorageError(f"{path} is offline: {target.failure}")
        async with self._one_at_a_time:
            await self._alter(tp, target)

    async def _alter(self, tp: TopicPartition, target: LogDir) -> None:
        partition, source = self._replicas.get(tp), self._logs.directory_of(tp)
        if partition is None or source is None:
            try:
                self._replicas.require(*tp)
            except KafkaError as error:
                if error.code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    raise
            self._logs.preferred[tp] = target
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{tp} has no replica here")
        self._replicas.require(*tp)
        move = self._moves.under_way.get(tp)
        if move is not None and move.target is target:
            return
        if move is not None:
            self._end(move)
            await self._dropped(move)
        if target is source:
            return
        move = self._moves.plan(partition.log, source, target)
        try:
            await self._pool.run(self._moves.begin, move)
        except KafkaError:
            self._end(move)
            await self._dropped(move)
            raise
        log.info("move begins: partition=%s from=%s to=%s", tp, source.path, target.path)
        queue = self._queues.get(target)
        if queue is None:
            queue = self._queues[target] = _MoveQueue()
            failed = logged("move between log directories")
            queue.runner = Runner(partial(self._work, queue), self._scheduler, failed=failed)
        queue.waiting.append(move)
        assert queue.runner is not None
        queue.runner.start()

    async def resume(self, found: Sequence[FoundFuture]) -> None:
        """Begin the moves again that an earlier incarnation of this broker had not ended.

        A copy whose move cannot begin is removed, unless the log it came from cannot be opened now.
        """
        for future in found:
            tp, path = future.marker.topic_partition, future.directory.path
            try:
                await self.alter(tp, str(path.absolute()))
            except KafkaError as error:
                log.warning("move is given up: partition=%s to=%s: %s", tp, path, error)
                if self._may_be_the_last(future):
                    continue
            await self._pool.run(self._moves.drop_path, tp, future.directory, future.path)

    def _may_be_the_last(self, future: FoundFuture) -> bool:
        """True if this may be the only readable copy: the log it came from is offline."""
        tp, moved = future.marker.topic_partition, future.marker.moved
        working = {one.directory_id for one in self._logs.online_dirs()}
        return tp in self._logs.refused or moved is None or moved.source not in working

    def _end(self, move: LogMove) -> None:
        move.is_over = True
        if self._moves.under_way.get(move.topic_partition) is move:
            del self._moves.under_way[move.topic_partition]

    async def _dropped(self, move: LogMove) -> None:
        """Remove the copy, unless the queue of its target does that in its next step."""
        queue = self._queues.get(move.target)
        if queue is not None and queue.at_work is move:
            return
        if queue is not None and move in queue.waiting:
            queue.waiting.remove(move)
        await self._pool.run(self._moves.drop, move)

    async def stop(self) -> None:
        """Stop copying; returns when no thread has a log. The next start continues."""
        self._is_stopping = True
        for proceed in list(self._pauses):
            proceed()
        loop = asyncio.get_running_loop()
        idle = [loop.create_future() for _ in self._queues]
        for queue, future in zip(self._queues.values(), idle, strict=True):
            assert queue.runner is not None
            queue.runner.when_idle(partial(future.set_result, None))
        await asyncio.gather(*idle)

    # -- carrying out

    def _work(self, queue: "_MoveQueue") -> Work[None]:
        while queue.waiting and not self._is_stopping:
            move = queue.at_work = queue.waiting.popleft()
            is_put_off = False
            try:
                is_put_off = not (yield from self._moved(move))
            except KafkaError as error:
                tp, target = move.topic_partition, move.target.path
                log.error(Incident.MOVE_FAILED.line(partition=tp, directory=target, error=error))  # noqa: TRY400
                self._end(move)
            except Exception:
                log.exception(
                    Incident.DEFECT.line(what=f"move failed: partition={move.topic_partition}")
                )
                self._end(move)
            queue.at_work = None
            if move.is_over and move.source.works:  # else the copy may be the only one left
                yield OnPool(self._pool, self._moves.drop, move)
            elif is_put_off:
                queue.waiting.append(move)
                yield from self._pause(RETRY_MS)
            yield None

    def _moved(self, move: LogMove) -> Work[bool]:
        """Copy, and replace the log by the copy; False: not possible yet."""
        tp = move.topic_partition
        while self._is_wanted(move):
            present, source = self._logs.get(tp), self._logs.directory_of(tp)
            if present is None or source is None or source is move.target:
                self._end(move)  # the replica is gone, or a request came during the swap
                return True
            if present.is_offline:
                raise KafkaStorageError(f"{tp} is offline where it is")
            if present.lease.is_truncating:
                return False  # a size read now would stand for other bytes after the truncation
            move.follow(present, source)
            if move.bytes_left <= SWAP_BYTES:
                if not self._may_swap(move):
                    return False
                yield OnPool(self._pool, self._moves.sync, move, present.segments.active)
                if self._is_wanted(move) and self._may_swap(move) and move.bytes_left <= SWAP_BYTES:
                    yield from self._swapped(move)
                    return move.is_over
                continue
            step = move.next_step()
            if step is None:
                return False
            yield from self._copied(move, step)
        return not self._is_stopping

    def _is_wanted(self, move: LogMove) -> bool:
        return not (move.is_over or self._is_stopping)

    def _copied(self, move: LogMove, step: Step) -> Work[None]:
        is_there = yield OnPool(self._pool, self._moves.copy, move, step)
        if not is_there and step.segment is not None:
            move.forget(step.segment.base_offset)
            yield from self._pause(RETRY_MS)
        self._pay()
        self._debt += (step.end - step.start) * 1_000
        while self._is_wanted(move):
            self._pay()
            rate = self._rate()
            pause_ms = -(-self._debt // rate) if rate else PAUSE_MS
            if self._debt < max(rate, 1):
                return
            yield from self._pause(min(pause_ms, PAUSE_MS))

    def _pay(self) -> None:
        now_ms = self._clock.monotonic_ms()
        paid = (now_ms - self._paid_ms) * self._rate()
        self._debt, self._paid_ms = max(self._debt - paid, 0), now_ms

    def _pause(self, ms: int) -> Work[None]:
        def begin(proceed: Callable[[], None]) -> None:
            def once() -> None:
                if once in self._pauses:
                    del self._pauses[once]
                    proceed()

            self._pauses[once] = None
            self._scheduler.call_later(ms, once)

        if not self._is_stopping:
            yield Until(begin)

    def _may_swap(self, move: LogMove) -> bool:
        """True if no other change of the log is under way, and its checkpoints are complete."""
        own, partition = move.log, self._replicas.get(move.topic_partition)
        return (
            partition is not None
            and partition.log is own
            and self._logs.is_open(own)
            and not own.lease.is_leased
            and self._replicas.hosting.is_done_with(move.topic_partition)
            and not own.has_damage
            and not any(segment.is_moving for segment in own.segments.all)  # a cleaner renames them
            and own.log_start_known
            and not own.epoch_file.lost
        )

    def _swapped(self, move: LogMove) -> Work[None]:
        tp, own = move.topic_partition, move.log
        partition = self._replicas.partitions[tp]
        led_epoch = partition.leader_epoch if partition.is_leader else None
        own.roll()
        steps = []
        while step := move.next_step():
            steps.append(step)
        assert not move.bytes_left, "no step is lost: each counts as copied from now on"
        partition.pause()
        own.lease.grant(truncates=True)
        try:
            future = yield OnPool(self._pool, self._moves.finish, move, steps)
            swap = self._logs.plan_swap(future)
            swapped = self._logs.take_swapped(swap, (yield OnPool(self._pool, swap.carry_out)))
            if isinstance(swapped, KafkaStorageError):
                raise swapped
            partition.replace_log(swapped)
            if self._logs.directory_of(tp) is not move.target:
                raise KafkaStorageError("its disk failed in the end")
            self._end(move)
            log.info("move is done: partition=%s to=%s", tp, move.target.path)
        finally:
            self._serve_on(partition, led_epoch)
            own.lease.take_back()
            self._replicas.serve_again(tp)

    def _serve_on(self, partition: Partition, led_epoch: int | None) -> None:
        """Lead again at once, unless the metadata changed its role meanwhile."""
        if led_epoch is not None and self._replicas.hosting.leads_on(partition, led_epoch):
            partition.lead_on()
