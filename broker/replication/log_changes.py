"""The changes of a follower's logs that an answer of their leader asks for, on pool threads.

Each change has exclusive use of its log: the event loop has leased it (`local_log.log.lease`). A
failed change stops its own partition only.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from broker.replica.partition import Partition
from broker.replication.fetch_session import Asked, PartitionId
from broker.replication.following import (
    Append,
    Begin,
    Following,
    Stop,
    Truncate,
    Wait,
    base_below,
    check_order,
)
from kafka_protocol.errors import KafkaError
from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError, LogClosed
from local_log.leader_epoch_cache import EpochEnd, truncation_for
from local_log.log.partition_log import PartitionLog
from local_log.log.results import Appended
from local_log.log.truncation import truncate_fully_and_start_at, truncate_to
from runtime.incidents import Incident

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Followed:
    """A partition under one leadership."""

    id: PartitionId
    partition: Partition
    following: Following

    @property
    def log(self) -> PartitionLog:
        """The present log; a bootstrap replaces it."""
        return self.partition.log

    @property
    def name(self) -> TopicPartition:
        """Topic and partition."""
        return self.partition.topic_partition


@dataclass(slots=True, eq=False)
class LogChange:
    """One change of one log, for a pool thread.

    Attributes:
        result: The appended size, or the new log end; or the error.
    """

    followed: Followed
    decision: Append | Truncate | Begin
    asked: Asked
    result: "Appended | int | Exception" = -1

    @property
    def truncates(self) -> bool:
        """True if the log, or its epoch chain, may become shorter."""
        log, end = self.followed.log, self.followed.log.log_end_offset
        is_append = isinstance(self.decision, Append)
        return not is_append or log.log_start_offset == end or log.epochs.reaches(end)

    def carry_out(self, now_ms: int) -> "Appended | int":
        """Change the log, on a pool thread that has leased it."""
        log = self.followed.log
        match self.decision:
            case Append(answer):
                check_order(answer.records)
                asked = self.asked.offset
                truncate_to(log, log.log_end_offset)  # epochs without a record
                base = base_below(answer.records, asked)
                if base is not None and log.log_start_offset == log.log_end_offset:
                    truncate_fully_and_start_at(log, base)
                    asked = base
                return log.append_batches(
                    answer.records,
                    now_ms=now_ms,
                    leader_epoch=self.asked.leader_epoch,
                    asked_offset=asked,
                )
            case Truncate(theirs, their_start):
                start, cut = log.log_start_offset, cut_of(log, theirs)
                # Records deleted here may be of another lineage than the leader's at their offsets.
                is_other = cut < start or log.epochs.epoch_for(start - 1) is None
                if cut <= start and is_other:
                    truncate_fully_and_start_at(log, their_start)
                else:
                    truncate_to(log, cut)
            case Begin(offset):
                truncate_fully_and_start_at(log, offset)
        return log.log_end_offset


def cut_of(log: PartitionLog, theirs: EpochEnd) -> int:
    """End of the log (exclusive) after a truncation to where it may agree with the leader's."""
    return truncation_for(log.epochs, theirs, log_end=log.log_end_offset)


def carry_out(changes: Sequence[LogChange], now_ms: int) -> None:
    """Carry out all changes, on a pool thread; each keeps its own result or error."""
    for change in changes:
        try:
            change.result = change.carry_out(now_ms)
        except Exception as error:  # noqa: BLE001 - looked at on the loop
            change.result = error


def after_error(error: Exception, followed: Followed) -> Wait | Stop:
    """Return the next step of a partition whose log refused a change."""
    if isinstance(error, LogClosed):
        return Stop("its log is closed")
    if isinstance(error, KafkaStorageError):
        return Stop(str(error), is_failure=True)  # until a restart, which gives it its role again
    if isinstance(error, KafkaError):
        return Wait(f"the leader sends wrong batches: {error}", is_fault=True)
    log.error(Incident.DEFECT.line(what=f"a log was not changed: {followed.name}"), exc_info=error)
    return Stop(f"a defect: {error!r}", is_failure=True)
