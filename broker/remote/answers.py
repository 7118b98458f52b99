"""The broker's answers to its tier: the state of local logs, and the few changes that it may make.

Everything runs on the broker's event loop, except opening a segment (it may repair and fsync files)
and checkpointing, which run on pools. A question for another topic id or another leader epoch than
the broker's is refused with NOT_LEADER_OR_FOLLOWER.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from broker.remote.confirmed_images import ConfirmedImages, DescribeQuorum
from broker.remote.removed_topics import RemovedTopicsFile
from broker.replica.hosting import RaiseEpoch
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.types import EpochEntry
from local_log.log import lookups, tier_segments
from local_log.log.partition_log import PartitionLog
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.quorum.node import MetadataNode
from rlm.link.endpoint import Received, Reply
from rlm.link.messages import (
    CLOSED_SEGMENTS_MAX,
    Ack,
    AnyMessage,
    ClosedLocalSegment,
    CopiedThrough,
    DescribeLog,
    Failure,
    Health,
    Image,
    ImageAtLeast,
    LogDescription,
    LossFound,
    OpenedSegment,
    OpenSegment,
    PartitionMessage,
    RaiseLeaderEpoch,
    RaiseLogStart,
    Report,
    RestoreChain,
    TopicsEmptied,
    ValidationWithdrawn,
)
from runtime.disk import OpenFile
from runtime.incidents import Incident
from runtime.ports import Ports

log = logging.getLogger(__name__)

IMAGE_POLL_MS = 20

UpdateRemovedTopics = Callable[[Collection[bytes]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ControllerQuestions:
    """Requests of the tier to the active controller, by `BrokerLifecycle`.

    Attributes:
        raise_epoch: Does not wait for an answer.
    """

    raise_epoch: RaiseEpoch
    update_removed_topics: UpdateRemovedTopics
    describe_quorum: DescribeQuorum


class RemoteFacts(Protocol):
    """Takes the tier's reports that are not about one partition."""

    def on_health(self, health: Health) -> None:
        """Take the tier's latest health."""
        ...


class BrokerAnswers:
    """Answers the tier's requests about this broker's logs."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataNode,
        controller: ControllerQuestions,
        removed_topics: RemovedTopicsFile,
        *,
        ports: Ports,
        facts: RemoteFacts,
    ) -> None:
        """Answer on the running event loop."""
        self._replicas, self._logs = replicas, replicas.logs
        self._metadata, self._controller = metadata, controller
        self._confirmed = ConfirmedImages(metadata, controller.describe_quorum, ports)
        self._removed_topics = removed_topics
        self._reads, self._commit = ports.executors.reads, ports.executors.commit
        self._scheduler, self._loop = ports.scheduler, asyncio.get_running_loop()
        self._facts = facts
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, received: Received, reply: Reply) -> None:
        """Answer one message of the tier."""
        match received.message:
            case DescribeLog() as asked:
                if self._log_start_is_kept(asked):
                    self._guarded(reply, lambda: self._describe(asked))
                else:
                    self._spawn(reply, self._keep_and_describe(asked, reply))
            case CopiedThrough() | LossFound() | ValidationWithdrawn() as report:
                self._take_when_here(report, reply)
            case OpenSegment() as question:
                self._spawn(reply, self._open_segment(question, reply))
            case RaiseLogStart() as request:
                self._spawn(reply, self._raise_log_start(request, reply))
            case RestoreChain() as request:
                self._spawn(reply, self._restore_chain(request, reply))
            case RaiseLeaderEpoch() as request:
                self._guarded(reply, lambda: self._need_leader_epoch(request))
            case ImageAtLeast() if self._metadata.is_alone:
                self._answer_image(self._metadata.high_watermark, reply)
            case ImageAtLeast():
                self._spawn(reply, self._answer_confirmed(reply))
            case TopicsEmptied(topic_ids):
                self._spawn(reply, self._emptied(topic_ids, reply))
            case Health() as health:
                self._facts.on_health(health)
            case other:
                log.error(
                    Incident.DEFECT.line(
                        what=f"the tier sent what only a broker sends: {type(other).__name__}"
                    )
                )
                reply(Failure(int(ErrorCode.INVALID_REQUEST), "not a question to a broker"))

    def _guarded(self, reply: Reply, answer: Callable[[], AnyMessage]) -> None:
        try:
            reply(answer())
        except KafkaError as error:
            reply(Failure(int(error.code), str(error)))

    def _spawn(self, reply: Reply, work: Coroutine[None, None, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except KafkaError as error:
                reply(Failure(int(error.code), str(error)))
            except OSError as error:
                doing = "a question of the tier"
                log.error(Incident.STORAGE_FAILED.line(doing=doing, error=str(error)))  # noqa: TRY400
                reply(Failure(int(ErrorCode.KAFKA_STORAGE_ERROR), str(error)))

        task = self._loop.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _partition(self, question: PartitionMessage) -> Partition:
        """The partition if it is led here under that epoch, else NOT_LEADER_OR_FOLLOWER."""
        found = self._replica(question)
        if not found.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not led here under that epoch")
        return found

    def _replica(self, question: PartitionMessage) -> Partition:
        """The partition if it is led or followed here under that epoch."""
        found = self._replicas.by_id(question.topic_id, question.partition)
        if found is None or found.leader_epoch != question.leader_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not here under that leader epoch")
        return found

    # -- questions

    def _log_start_is_kept(self, question: DescribeLog) -> bool:
        found = self._replicas.by_id(question.topic_id, question.partition)
        return found is None or self._logs.is_log_start_kept(found.topic_partition)

    async def _keep_and_describe(self, question: DescribeLog, reply: Reply) -> None:
        """Describe a log once its start is durable: the tier deletes everything below the start."""
        while not self._log_start_is_kept(question):
            tp = self._replica(question).topic_partition
            failed = await self._commit.run(self._logs.keep_log_starts, [tp])
            if failed:
                raise failed[tp]
        reply(self._describe(question))

    def _describe(self, question: DescribeLog) -> LogDescription:
        partition = self._replica(question)
        local = partition.log
        tail = tier_segments.closed_tail(local, question.closed_from, CLOSED_SEGMENTS_MAX)
        closed = [
            ClosedLocalSegment(s.base_offset, s.last_offset, s.size_bytes, s.max_timestamp_ms)
            for s in tail.segments
        ]
        return LogDescription(
            question.topic_id,
            question.partition,
            question.leader_epoch,
            log_start_offset=local.log_start_offset,
            log_start_known=local.log_start_known,
            local_log_start_offset=local.local_log_start_offset,
            last_stable_offset=local.last_stable_offset,
            high_watermark=local.high_watermark,
            chain=[(entry.epoch, entry.start_offset) for entry in local.epochs.entries()],
            closed_segments=closed,
            log_end_offset=local.log_end_offset,
            log_start_has_no_entry=local.log_start_has_no_entry and not local.log_start_known,
            chain_problem=local.epoch_file.lost,
            unvalidated_end=local.unvalidated_end,
            adopted_epoch=local.adopted_epoch,
            local_bytes=local.size_bytes,
            metadata_offset=self._metadata.image.provenance.offset,
            closed_from=question.closed_from,
            closed_bytes_below=tail.bytes_below,
            more_closed_count=tail.more_count,
            more_closed_bytes=tail.more_bytes,
            members_log_start=partition.members_log_start,
            members_highest_log_start=partition.members_highest_log_start,
        )

    async def _open_segment(self, question: OpenSegment, reply: Reply) -> None:
        partition = self._partition(question)
        files: tier_segments.SegmentFiles = await self._reads.run(
            tier_segments.open_segment, partition.log, question.base_offset
        )
        descriptors: list[OpenFile] = [
            files.log,
            files.offset_index,
            files.time_index,
            files.producer_snapshot,
        ]
        if files.transaction_index is not None:
            descriptors.append(files.transaction_index)
        self._partition(question)  # the epoch may have changed in the meantime
        answer = OpenedSegment(
            question.topic_id,
            question.partition,
            question.leader_epoch,
            base_offset=question.base_offset,
            size_bytes=files.size_bytes,
            transaction_index_is_there=files.transaction_index is not None,
            transaction_index_is_empty=files.txn_index_empty,
            leader_epoch_index=files.leader_epoch_index,
        )
        reply(answer, descriptors)

    def _answer_image(self, wanted: int, reply: Reply) -> None:
        """Answer once the image has reached `wanted` (a high watermark, exclusive).

        For the only voter: this node has acknowledged each change.
        """
        if self._metadata.image.provenance.end_offset < wanted:
            self._scheduler.call_later(IMAGE_POLL_MS, lambda: self._answer_image(wanted, reply))
            return
        self._spawn(reply, self._report_image(reply))

    async def _answer_confirmed(self, reply: Reply) -> None:
        await self._confirmed.confirm()
        await self._report_image(reply)

    async def _report_image(self, reply: Reply) -> None:
        """Answer with the image once the removals in it are on disk: the tier acts on them."""
        image = self._metadata.image
        kept = await self._removed_topics.kept(image.topics_by_id)
        reply(
            Image(
                list(image.topics_by_id),
                image.provenance.offset,
                self._metadata.cluster_id,
                kept,
                removals_are_listed=self._removed_topics.are_listed(),
            )
        )

    # -- changes

    async def _emptied(self, topic_ids: Collection[bytes], reply: Reply) -> None:
        listed = self._metadata.image.removed_tiered_topics
        if told := [one for one in topic_ids if one in listed]:
            await self._controller.update_removed_topics(told)
        self._removed_topics.drop(topic_ids)
        await self._removed_topics.kept()
        reply(Ack())

    def _take_when_here(self, report: Report, reply: Reply) -> None:
        """Take a report once the log is not leased, so that it counts for the log after a swap."""
        found = self._replicas.by_id(report.topic_id, report.partition)
        take = partial(self._guarded, reply, lambda: self._take(report))
        if found is None:
            take()
        else:
            found.log.lease.when_here(take)

    def _take(self, report: Report) -> Ack:
        partition = self._replica(report)
        if isinstance(report, CopiedThrough) and report.last_offset >= 0:
            if not partition.log.set_copied_through(report.last_offset, report.last_offset_epoch):
                return Ack(taken=False, reason="the local chain has another epoch at that offset")
        else:
            partition.log.forget_copies()
        if partition.is_leader:
            partition.take_report(report)
        return Ack()

    def _need_leader_epoch(self, request: RaiseLeaderEpoch) -> Ack:
        partition = self._partition(request)
        replica = ReplicaId(partition.topic_id, partition.partition)
        in_vain = self._controller.raise_epoch(
            replica, leader_epoch=partition.leader_epoch, used=request.used
        )
        return Ack(taken=not in_vain, reason=in_vain)

    async def _restore_chain(self, request: RestoreChain, reply: Reply) -> None:
        partition = self._partition(request)
        chain = [EpochEntry(epoch, start) for epoch, start in request.entries]
        if not await self._reads.run(lookups.fits_batches, partition.log, chain):
            reply(Ack(taken=False, reason="a local batch is of another epoch"))
            return
        self._partition(request)  # the epoch may have changed in the meantime
        version, restored = partition.log.epoch_file.version, partition.log.restored_chain(chain)
        await self._commit.run(partition.log.epoch_file.write_ahead, restored, version)
        self._partition(request)  # the epoch may have changed in the meantime
        partition.log.epoch_file.restore(partition.log.restored_chain(chain))
        log.warning(
            "epoch chain restored from the store: partition=%s entries=%d",
            partition.topic_partition,
            len(chain),
        )
        reply(Ack())

    async def _raise_log_start(self, request: RaiseLogStart, reply: Reply) -> None:
        partition = self._partition(request)
        local: PartitionLog = partition.log
        if request.offset > local.high_watermark:
            reply(Ack(taken=False, reason=f"above the high watermark {local.high_watermark}"))
            return
        local.raise_log_start(request.offset)
        kept = local.log_start_offset
        failed = await self._commit.run(self._logs.keep_log_starts, [partition.topic_partition])
        if failed:
            raise failed[partition.topic_partition]
        local.clip_chain(kept)
        log.info(
            "log start moved: partition=%s offset=%d reason=%s",
            partition.topic_partition,
            request.offset,
            request.reason,
        )
        partition.log_start_raised()
        reply(Ack())  # a later description says when followers have it: no thread waits for them
