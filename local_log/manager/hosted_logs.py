"""Open logs of this broker, their log directories, and refused partitions."""

from collections import Counter

from kafka_protocol.types import TopicPartition
from local_log.log.partition_log import PartitionLog
from local_log.manager.loading import Refused
from local_log.manager.log_dir import LogDir


class HostedLogs:
    """The logs of a broker. Changed by the event loop; read from any thread.

    Attributes:
        refused: Partitions with files here that are not open.
        being_replaced: Partitions whose log is closed while another one replaces it.
    """

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}
        self._counts: Counter[LogDir] = Counter()
        self.refused: dict[TopicPartition, Refused] = {}
        self.being_replaced: set[TopicPartition] = set()

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """Return the open log of a partition."""
        return self._logs.get(tp)

    def all(self) -> list[PartitionLog]:
        """Return every open log."""
        return list(self._logs.values())

    def directory_of(self, tp: TopicPartition) -> LogDir | None:
        """Return the log directory of an open log."""
        return self._dir_of.get(tp)

    def count_in(self, directory: LogDir) -> int:
        """Return the number of open logs in a directory."""
        return self._counts[directory]

    def logs_in(self, directory: LogDir) -> dict[TopicPartition, PartitionLog]:
        """Return the open logs of a directory (a copy)."""
        logs = self._logs.copy().items()
        return {tp: log for tp, log in logs if self._dir_of.get(tp) is directory}

    def checkpointed_in(self, directory: LogDir) -> dict[TopicPartition, PartitionLog]:
        """Return the logs of a directory for its checkpoints (a copy).

        Without those being replaced, whose entries are of the next log already.
        """
        without = self.being_replaced.copy()  # first: an old log must not pass for the new one
        return {tp: log for tp, log in self.logs_in(directory).items() if tp not in without}

    def refused_in(self, directory: LogDir) -> dict[TopicPartition, int]:
        """Return offline partitions of a directory, with the recovery point to write for each.

        Returns:
            Recovery point by partition.
        """
        return {
            tp: refused.recovery_point
            for tp, refused in self.refused.copy().items()
            if directory in refused.directories
        }

    def add(self, log: PartitionLog, directory: LogDir) -> None:
        """Add a log that was opened or created."""
        tp = log.topic_partition
        self._logs[tp] = log
        self._dir_of[tp] = directory
        self._counts[directory] += 1

    def close_replaced(self, tp: TopicPartition) -> None:
        """Close a log that is about to be replaced; it stays the partition's log until then."""
        self.being_replaced.add(tp)
        self._logs[tp].close(clean=False, by_leaseholder=True)

    def replace(self, log: PartitionLog, directory: LogDir) -> None:
        """Replace the log of a partition, in this directory."""
        tp = log.topic_partition
        self._counts[self._dir_of[tp]] -= 1
        self.being_replaced.discard(tp)
        self.add(log, directory)

    def refuse(self, refused: dict[TopicPartition, Refused]) -> None:
        """Set the partitions that were not opened."""
        self.refused = refused

    def take_out(self, tp: TopicPartition) -> list[LogDir]:
        """Close and remove a partition.

        Returns:
            The directories with its files.
        """
        self.being_replaced.discard(tp)
        log = self._logs.pop(tp, None)
        if log is None:
            refused = self.refused.pop(tp, None)
            return [] if refused is None else list(refused.directories)
        log.close(clean=False)
        directory = self._dir_of.pop(tp)
        self._counts[directory] -= 1
        return [directory]
