"""Finds a partition in the log directories of a node, without the broker."""

from broker.config.broker_config import BrokerConfig
from kafka_protocol.files.segment_names import partition_dir
from kafka_protocol.types import TopicPartition
from local_log.inspection import Inspection, inspect
from local_log.log_dir import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    LogDir,
)
from local_log.log_dirs import METADATA_TOPIC
from local_log.survey import OpenRequest
from runtime.clock import SystemClock
from runtime.disk import Disk
from tidemark.offline_topics import OfflineLogError, log_config


def inspections(config: BrokerConfig, topic: str, partition: int, disk: Disk) -> list[Inspection]:
    """Look at a partition in every log directory that has it; nothing is changed.

    Raises:
        OfflineLogError: no directory has it, or its topic's settings are not known.
        OSError: a directory cannot be read.
    """
    tp = TopicPartition(topic, partition)
    if topic == METADATA_TOPIC:
        raise OfflineLogError(f"{topic} is no partition of a topic: it has its own recovery")
    paths = [path for path in config.log_dirs if disk.is_dir(path / partition_dir(tp))]
    if not paths:
        raise OfflineLogError(
            f"{partition_dir(tp)} is in none of log.dirs={','.join(map(str, config.log_dirs))}"
        )
    settings, now_ms = log_config(config, topic, disk), SystemClock().wall_ms()
    found = []
    for path in paths:
        directory = LogDir(path, disk)
        request = OpenRequest(
            path / partition_dir(tp),
            settings,
            recovery_point=directory.read_checkpoint(RECOVERY_POINTS).get(tp, 0),
            log_start=directory.read_checkpoint(LOG_STARTS).get(tp),
            high_watermark=directory.read_checkpoint(HIGH_WATERMARKS).get(tp, 0),
            is_clean=disk.exists(path / CLEAN_SHUTDOWN),
            now_ms=now_ms,
            was_compacted=tp in directory.read_checkpoint(CLEANER_OFFSETS),
        )
        found.append(inspect(disk, request, tp))
    return found
