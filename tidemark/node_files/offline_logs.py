"""Finds a partition in the log directories of a node, without the broker."""

from broker.config.broker_config import BrokerConfig
from kafka_protocol.files.segment_names import partition_dir
from local_log.checked_files import CheckedFiles
from local_log.manager.loading import known_log_start, known_recovery_point
from local_log.manager.log_dir import CLEAN_SHUTDOWN, CLEANER_OFFSETS, HIGH_WATERMARKS, LogDir
from local_log.recovery.inspection import Inspection, inspect
from local_log.recovery.survey import OpenRequest
from runtime.clock import SystemClock
from runtime.disk import Disk
from tidemark.node_files.offline_topics import OfflineLogError, log_config, partition_of


def inspections(config: BrokerConfig, topic: str, partition: int, disk: Disk) -> list[Inspection]:
    """Look at a partition in every log directory that has it; nothing is changed.

    Raises:
        OfflineLogError: no directory has it, or its topic's settings are not known.
        OSError: a directory cannot be read.
    """
    tp = partition_of(topic, partition)
    paths = [path for path in config.log_dirs if disk.is_dir(path / partition_dir(tp))]
    if not paths:
        raise OfflineLogError(
            f"{partition_dir(tp)} is in none of log.dirs={','.join(map(str, config.log_dirs))}"
        )
    settings, now_ms = log_config(config, topic, disk), SystemClock().wall_ms()
    found = []
    for path in paths:
        home, directory = LogDir(path, disk), path / partition_dir(tp)
        home.read_checkpoints()
        request = OpenRequest(
            tp,
            directory,
            settings,
            recovery_point=known_recovery_point(home, tp, directory),
            log_start=known_log_start(home, tp, settings, directory),
            high_watermark=home.entry(HIGH_WATERMARKS, tp) or 0,
            is_clean=disk.exists(path / CLEAN_SHUTDOWN),
            now_ms=now_ms,
            was_compacted=home.entry(CLEANER_OFFSETS, tp) is not None,
        )
        found.append(inspect(disk, request, CheckedFiles(disk, directory)))
    return found
