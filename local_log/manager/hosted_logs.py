"""Which logs are open here, in which log directory each lies, and which are refused."""

from collections import Counter

from kafka_protocol.types import TopicPartition
from local_log.log.partition_log import PartitionLog
from local_log.manager.loading import Refused
from local_log.manager.log_dir import LogDir


class HostedLogs:
    """See the module. Changed by the event loop; any thread may ask.

    Attributes:
        refused: partitions whose files are here and that are not open.
        being_replaced: partitions whose log is closed while another takes its place.
    """

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}
        self._counts: Counter[LogDir] = Counter()
        self.refused: dict[TopicPartition, Refused] = {}
        self.being_replaced: set[TopicPartition] = set()

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The open log of a partition."""
        return self._logs.get(tp)

    def all(self) -> list[PartitionLog]:
        """Every open log."""
        return list(self._logs.values())

    def directory_of(self, tp: TopicPartition) -> LogDir | None:
        """The log directory an open log lies in."""
        return self._dir_of.get(tp)

    def count_in(self, directory: LogDir) -> int:
        """How many open logs lie in a directory."""
        return self._counts[directory]

    def logs_in(self, directory: LogDir) -> dict[TopicPartition, PartitionLog]:
        """The open logs of a directory (a copy)."""
        logs = self._logs.copy().items()
        return {tp: log for tp, log in logs if self._dir_of.get(tp) is directory}

    def checkpointed_in(self, directory: LogDir) -> dict[TopicPartition, PartitionLog]:
        """The logs of a directory of which the checkpoints are to be written (a copy).

        Of one that is being replaced they say already where the next one begins.
        """
        without = self.being_replaced.copy()  # first: an old log must not pass for the new one
        return {tp: log for tp, log in self.logs_in(directory).items() if tp not in without}

    def refused_in(self, directory: LogDir) -> dict[TopicPartition, int]:
        """Partitions of a directory that are offline for what their files say.

        Returns:
            What the checkpoint is to say of the recovery point of each.
        """
        return {
            tp: refused.recovery_point
            for tp, refused in self.refused.copy().items()
            if directory in refused.directories
        }

    def add(self, log: PartitionLog, directory: LogDir) -> None:
        """A log was opened or begun."""
        tp = log.topic_partition
        self._logs[tp] = log
        self._dir_of[tp] = directory
        self._counts[directory] += 1

    def close_replaced(self, tp: TopicPartition) -> None:
        """Close a log that another one is about to replace; it stays the partition's until then."""
        self.being_replaced.add(tp)
        self._logs[tp].close(clean=False, by_leaseholder=True)

    def replace(self, log: PartitionLog, directory: LogDir) -> None:
        """A log has taken the place of another, in this directory."""
        tp = log.topic_partition
        self._counts[self._dir_of[tp]] -= 1
        self.being_replaced.discard(tp)
        self.add(log, directory)

    def refuse(self, refused: dict[TopicPartition, Refused]) -> None:
        """These are the partitions that were not opened."""
        self.refused = refused

    def take_out(self, tp: TopicPartition) -> list[LogDir]:
        """Close and forget a partition.

        Returns:
            The directories its files lie in.
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
