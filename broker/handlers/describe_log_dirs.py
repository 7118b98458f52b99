"""DescribeLogDirs (35): the log directories of this broker, and the partitions in each.

Sizes are those of the local segments, from memory: no directory is read. Kafka has no field for
data in the remote tier. A partition whose files could not be opened is in no directory, nor is one
of an offline directory, as in Kafka. A replica that is being moved is in two: its current one, and
as a future replica in the target. No directory is ever cordoned.

Versions:

* 1: the lowest that Kafka 4 serves (KIP-113).
* 2: flexible (KIP-482).
* 3: an error of the whole answer (KIP-784).
* 4: total and usable bytes of each directory (KIP-827).
* 5: whether a directory takes new replicas (KIP-1066).
"""

from collections.abc import Iterator
from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from broker.replica.manager import ReplicaManager
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import LongArray, response
from kafka_protocol.wire.schema import Versions
from local_log.errors import KafkaStorageError
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dir import LogDir
from local_log.manager.log_dirs import LogManager
from local_log.manager.moving import LogMove
from runtime.executors import Pool
from runtime.work import Pace, Steps, run_in_steps

_response: Final = response(ApiKey.DESCRIBE_LOG_DIRS)
_Response: Final = _response.cls
_Result: Final = _Response.Results
_Topic: Final = _Result.Topics
_Partition: Final = _Topic.Partitions

_LAG_UNKNOWN: Final = -1

Held = dict[LogDir, dict[str, dict[int, PartitionLog | LogMove]]]
"""Logs and future logs by directory, topic and partition."""


class DescribeLogDirsHandler(DecodedHandler):
    """Serves DescribeLogDirs 1-5."""

    api_key = ApiKey.DESCRIBE_LOG_DIRS
    versions = Versions(1, 5)

    def __init__(self, logs: LogManager, replicas: ReplicaManager, pool: Pool) -> None:
        """Describe the directories of `logs`; disk space is read on `pool`."""
        self._logs, self._replicas, self._pool = logs, replicas, pool

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Describe each directory; one that is offline or fails gets its own error."""
        dirs = self._logs.dirs
        spaces = await self._pool.run(lambda: [_space(directory) for directory in dirs])
        held = await run_in_steps(self._held(request))
        answer = _Response(
            results=[
                self._result(directory, space, held.get(directory, {}))
                for directory, space in zip(dirs, spaces, strict=True)
            ]
        )
        return await run_in_steps(_response.encode_steps(answer, context.api_version))

    def _held(self, request: Any) -> Steps[Held]:
        held: Held = {}
        pace = Pace()
        for tp in self._asked(request):
            log, directory = self._logs.get(tp), self._logs.directory_of(tp)
            if log is not None and directory is not None:
                held.setdefault(directory, {}).setdefault(tp.topic, {})[tp.partition] = log
            move = self._logs.moves.under_way.get(tp)
            if move is not None:
                held.setdefault(move.target, {}).setdefault(tp.topic, {})[tp.partition] = move
            if pace.is_step_over():
                yield
        return held

    def _asked(self, request: Any) -> Iterator[TopicPartition]:
        if request.topics is None:
            yield from (log.topic_partition for log in self._logs.all())
            return
        for topic in request.topics:
            yield from (TopicPartition(topic.topic, index) for index in topic.partitions)

    def _result(
        self,
        directory: LogDir,
        space: tuple[int, int] | Exception,
        topics: dict[str, dict[int, PartitionLog | LogMove]],
    ) -> Any:
        path = str(directory.path.absolute())
        if isinstance(space, Exception):
            return _Result(error_code=code_of(space, "describe log directories"), log_dir=path)
        total, usable = space
        described = (
            _Topic(
                name=topic,
                partitions=LongArray(len(logs), (self._partition(log) for log in logs.values())),
            )
            for topic, logs in topics.items()
        )
        return _Result(
            log_dir=path,
            topics=LongArray(len(topics), described),
            total_bytes=total,
            usable_bytes=usable,
        )

    def _partition(self, log: PartitionLog | LogMove) -> Any:
        if isinstance(log, LogMove):
            return _Partition(
                partition_index=log.topic_partition.partition,
                partition_size=log.copied_bytes,
                offset_lag=log.offset_lag,
                is_future_key=True,
            )
        is_hosted = self._replicas.get(log.topic_partition) is not None
        lag = max(log.high_watermark - log.log_end_offset, 0) if is_hosted else _LAG_UNKNOWN
        return _Partition(
            partition_index=log.partition, partition_size=log.size_bytes, offset_lag=lag
        )


def _space(directory: LogDir) -> tuple[int, int] | Exception:
    """Total and usable bytes of a directory's disk, or the error."""
    disk, path = directory.disk, directory.path
    if not directory.works:  # a failed disk may block without end
        return KafkaStorageError(f"{path} is offline")
    try:
        return disk.total_bytes(path), disk.free_bytes(path)
    except OSError as error:
        return error


def make(parts: HandlerParts) -> DescribeLogDirsHandler:
    """Make the handler of DescribeLogDirs."""
    return DescribeLogDirsHandler(parts.logs, parts.replicas, parts.ports.executors.reads)
