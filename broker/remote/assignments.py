"""Sends the tier its partitions: the differences, and all of them to a new tier."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

import msgspec

from broker.remote.supervisor import Supervisor
from broker.replica.hosting import ReplicaEvents
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from local_log.config import LogConfig
from rlm.link.messages import Assign, PartitionSettings, Unassign
from runtime.scheduler import Scheduler

PartitionKey = tuple[bytes, int]

SLICE_PARTITIONS: Final = 100
"""Some milliseconds of the event loop: each is a message on the link."""


def settings_of(config: LogConfig) -> PartitionSettings | None:
    """The tier's part of a topic's settings; None where the topic is not tiered."""
    if config.remote_storage_enable:
        mode = "read_only" if config.remote_log_copy_disable else "active"
    elif config.drops_remote:
        mode = "drop"
    else:
        return None
    lag_ms, lag_bytes = config.remote_copy_lag_ms, config.remote_copy_lag_bytes
    return PartitionSettings(
        mode=mode,
        retention_ms=config.retention_ms if config.deletes else -1,
        retention_bytes=config.retention_bytes if config.deletes else -1,
        copy_lag_ms=config.effective_local_retention_ms if lag_ms == -1 else lag_ms,
        copy_lag_bytes=config.effective_local_retention_bytes if lag_bytes == -1 else lag_bytes,
    )


class Assignments:
    """Keeps the tier's list of partitions equal to the replica manager's."""

    def __init__(
        self,
        replicas: ReplicaManager,
        supervisor: Supervisor,
        scheduler: Scheduler,
        is_tierable: Callable[[Partition], bool],
        metadata_offset: Callable[[], int],
    ) -> None:
        """Send nothing yet; `metadata_offset` is that of the image that the replicas are at."""
        self._replicas, self._supervisor, self._is_tierable = replicas, supervisor, is_tierable
        self._scheduler, self._metadata_offset = scheduler, metadata_offset
        self._reported: dict[PartitionKey, Assign] = {}
        self._due: dict[PartitionKey, Partition | None] = {}  # in order; None: it is gone
        self._is_reporting = False
        self._when_reported: Callable[[], None] | None = None

    def on_tier_up(self) -> None:
        """Send all partitions: a new tier has none."""
        self._reported.clear()
        self._due.clear()
        self._report_led(self._replicas.partitions.values())

    def on_replicas(self, events: ReplicaEvents) -> None:
        """Send the changes, unless no tier is up."""
        if self._supervisor.endpoint is None:
            return
        for partition in events.gone:
            key = (partition.topic_id, partition.partition)
            if key in self._reported:
                self._due[key] = None
            else:
                self._due.pop(key, None)
        self._report_led([*events.led, *events.followed, *events.configured])

    def when_reported(self, call: Callable[[], None]) -> None:
        """Call it once all changes are sent; a later call replaces this one."""
        if self._is_reporting:
            self._when_reported = call
        else:
            call()

    def _report_led(self, partitions: Iterable[Partition]) -> None:
        """Send these, in slices if there are many, each in its state at that time."""
        for each in partitions:
            key = (each.topic_id, each.partition)
            if self._due.get(key, each) is None:
                self._take_away(key)  # it was deleted and is back, with other files
            self._due[key] = each
        if not self._is_reporting:
            self._report_some()

    def _report_some(self) -> None:
        self._is_reporting = False
        if self._supervisor.endpoint is None:
            self._due.clear()  # the next tier gets all
        for key in list(islice(self._due, SLICE_PARTITIONS)):
            self._report(key, self._due.pop(key))
        if self._due:
            self._is_reporting = True
            self._scheduler.call_later(0, self._report_some)
        elif self._when_reported is not None:
            call, self._when_reported = self._when_reported, None
            call()

    def _report(self, key: PartitionKey, partition: Partition | None) -> None:
        assign = None if partition is None else self._wanted(partition)
        if assign is None:
            self._take_away(key)
        elif self._reported.get(key) != assign:
            self._supervisor.ask(
                msgspec.structs.replace(assign, metadata_offset=self._metadata_offset())
            )
            self._reported[key] = assign  # without the offset: another one alone is not sent

    def _take_away(self, key: PartitionKey) -> None:
        told = self._reported.pop(key, None)
        if told is not None:
            self._supervisor.ask(Unassign(told.topic_id, told.partition, told.leader_epoch))

    def _wanted(self, partition: Partition) -> Assign | None:
        settings = settings_of(partition.log.config)
        if settings is None or not self._is_tierable(partition):
            return None
        return Assign(
            partition.topic_id,
            partition.partition,
            partition.leader_epoch,
            topic=partition.topic,
            is_leader=partition.is_leader,
            settings=settings,
            unclean_epoch=partition.unclean_epoch,
        )
