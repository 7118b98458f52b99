"""Answers to requests of other replicas: waiting requests, and reads of the disk for them."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.quorum.driver.ports import DriverWorld
from metadata_topic.raft.effects import RespondChunk, RespondRecords
from metadata_topic.raft.messages import FetchResponse, FetchSnapshotResponse, Response
from runtime.executors import Pool

log = logging.getLogger(__name__)

T = TypeVar("T")
Respondent = Callable[[Response], None]


class Answers:
    """Requests that wait for their answer, by token; on the loop's thread."""

    def __init__(self, world: DriverWorld, leads: Callable[[int], bool]) -> None:
        """Take the parts.

        Args:
            world: Its log and snapshots are read, on the pool `log-reads` where that may wait.
            leads: True if this replica leads an epoch now.
        """
        self._log, self._snapshots = world.log, world.snapshots
        self._scheduler = world.ports.scheduler
        self._pool = world.ports.executors.reads
        self._log_pool = self._log.gate.pool(self._pool, self._scheduler)
        self._leads = leads
        self._waiting: dict[int, Respondent] = {}
        self._tokens = 0

    @property
    def waiting_count(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def expect(self, respond: Respondent) -> int:
        """Take a request; returns its token."""
        self._tokens += 1
        self._waiting[self._tokens] = respond
        return self._tokens

    def forget(self) -> None:
        """Answer none of those that wait."""
        self._waiting.clear()

    def respond(self, token: int, response: Response) -> None:
        """Answer a request, the first time."""
        respond = self._waiting.pop(token, None)
        if respond is not None:
            respond(response)

    # -- records --------------------------------------------------------------------------------

    def respond_records(self, effect: RespondRecords) -> None:
        """Answer a Fetch with records; see the effect."""
        if effect.offset >= effect.end_offset:
            self._records_read(effect, b"")
            return
        if self._log.gate.is_shut or not self._leads(effect.standing.epoch):
            self._records_dropped(effect)
            return
        try:
            data = self._log.read_resident(effect.offset, effect.max_bytes, effect.end_offset)
        except (KafkaError, OSError) as error:
            self._records_unreadable(effect, error)
            return
        if data is not None:
            self._records_read(effect, data)
            return
        self._read(
            self._log_pool,
            partial(self._log.read, effect.offset, effect.max_bytes, end_offset=effect.end_offset),
            partial(self._records_read, effect),
            partial(self._records_unreadable, effect),
        )

    def _records_read(self, effect: RespondRecords, data: bytes) -> None:
        standing = effect.standing
        if data and not self._leads(standing.epoch):
            # The log may have been cut and continued while it was read.
            self._records_dropped(effect)
            return
        response = FetchResponse(
            ErrorCode.NONE,
            standing,
            high_watermark=effect.high_watermark,
            log_start_offset=effect.log_start_offset,
            data=data,
        )
        self.respond(effect.token, response)

    def _records_dropped(self, effect: RespondRecords) -> None:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.respond(effect.token, FetchResponse(error, effect.standing))

    def _records_unreadable(self, effect: RespondRecords, error: BaseException) -> None:
        log.warning("cannot read the metadata log: offset=%d: %s", effect.offset, error)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        self.respond(effect.token, FetchResponse(code, effect.standing))

    # -- snapshots ------------------------------------------------------------------------------

    def respond_chunk(self, effect: RespondChunk) -> None:
        """Answer a FetchSnapshot with bytes of the file; see the effect."""
        read = self._snapshots.read_chunk
        self._read(
            self._pool,
            partial(read, effect.snapshot_id, effect.position, effect.max_bytes),
            partial(self._chunk_read, effect),
            partial(self._chunk_unreadable, effect),
        )

    def _chunk_read(self, effect: RespondChunk, data: bytes | None) -> None:
        if not data:
            code = ErrorCode.SNAPSHOT_NOT_FOUND
            response = FetchSnapshotResponse(code, effect.standing, effect.snapshot_id)
        else:
            response = FetchSnapshotResponse(
                ErrorCode.NONE,
                effect.standing,
                effect.snapshot_id,
                effect.size_bytes,
                effect.position,
                data,
            )
        self.respond(effect.token, response)

    def _chunk_unreadable(self, effect: RespondChunk, error: BaseException) -> None:
        log.warning("cannot read a snapshot: file=%s: %s", effect.snapshot_id.file_name, error)
        self._chunk_read(effect, None)

    def _read(
        self,
        pool: Pool,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        def finish() -> None:
            error = future.exception()
            if error is not None:
                failed(error)
            else:
                done(future.result())

        future = pool.submit(work)
        future.add_done_callback(lambda _: self._scheduler.call_soon(finish))
