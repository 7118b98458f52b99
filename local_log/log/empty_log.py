"""Files of a log that begins in a new directory: each is written once.

The directory is empty, so this needs no temporary files and renames, by which a log changes later.
The rest after a kill is opened like any other log.
"""

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.files.meta_properties import dump_partition_metadata
from kafka_protocol.types import EpochEntry
from local_log.checked_files import CheckedFiles
from local_log.file_names import EPOCH_CHECKPOINT, PARTITION_METADATA
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.producers.snapshots import ProducerSnapshots
from local_log.producers.state import ProducerStates
from local_log.recovery.recovery import OpenedLog
from local_log.recovery.survey import OpenRequest
from local_log.segment.segment import LogSegment
from runtime.disk import Disk


def begin_empty(
    disk: Disk,
    request: OpenRequest,
    files: CheckedFiles,
    *,
    topic_id: bytes,
    leader_epoch: int | None,
) -> OpenedLog:
    """Write the files of an empty log; nothing is durable on return.

    Args:
        disk: Of the directory, which is empty.
        request: The request for `PartitionLog.open`.
        files: Of the directory, without any entries.
        topic_id: 16 raw bytes.
        leader_epoch: Epoch under which this broker will lead the log, if known. The chain then has
            it from the beginning.

    Raises:
        OSError: The disk failed.
    """
    chain = [] if leader_epoch is None else [EpochEntry(leader_epoch, 0)]
    files.begin(
        {
            PARTITION_METADATA: dump_partition_metadata(topic_id),
            EPOCH_CHECKPOINT: epoch_checkpoint.dump(chain),
        }
    )
    config = request.config
    segment = LogSegment.create(
        disk,
        request.directory,
        0,
        index_bytes=config.segment_index_bytes,
        now_ms=request.now_ms,
    )
    segment.index_interval_bytes = config.index_interval_bytes
    return OpenedLog(
        [segment],
        LeaderEpochCache(chain),
        ProducerStates(),
        ProducerSnapshots(disk, request.directory, ()),
        log_start_offset=0,
        log_end_offset=0,
        chain_is_dirty=not config.remote_storage_enable,
    )
