"""Which partitions the tier is to work on, told as differences; all of it again to a new tier."""

from collections.abc import Callable

import msgspec

from broker.remote.supervisor import Supervisor
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from local_log.config import LogConfig
from rlm.messages import Assign, PartitionSettings, Unassign

PartitionKey = tuple[bytes, int]


def settings_of(config: LogConfig) -> PartitionSettings | None:
    """What the topic's settings say to its tier; None where tiering has nothing to do with it."""
    if config.remote_storage_enable:
        mode = "read_only" if config.remote_log_copy_disable else "active"
    elif config.remote_log_delete_on_disable:
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
        is_tierable: Callable[[Partition], bool],
        metadata_offset: Callable[[], int],
    ) -> None:
        """Tell nothing yet; `metadata_offset` is that of the image that the replicas are at."""
        self._replicas, self._supervisor, self._is_tierable = replicas, supervisor, is_tierable
        self._metadata_offset = metadata_offset
        self._told: dict[PartitionKey, Assign] = {}

    def on_tier_up(self) -> None:
        """A new tier knows nothing."""
        self._told.clear()
        self.reconcile()

    def reconcile(self) -> bool:
        """Tell the tier what changed.

        Returns:
            True if a partition went away: the remover may have work.
        """
        if self._supervisor.endpoint is None:
            return False
        wanted = self._wanted()
        gone = [told for key, told in self._told.items() if key not in wanted]
        for old in gone:
            self._supervisor.ask(Unassign(old.topic_id, old.partition, old.leader_epoch))
            del self._told[old.topic_id, old.partition]
        for key, assign in wanted.items():
            if self._told.get(key) != assign:
                self._supervisor.ask(
                    msgspec.structs.replace(assign, metadata_offset=self._metadata_offset())
                )
                self._told[key] = assign  # without the offset: it alone is no news
        return bool(gone)

    def _wanted(self) -> dict[PartitionKey, Assign]:
        wanted: dict[PartitionKey, Assign] = {}
        for partition in self._replicas.partitions.values():
            settings = settings_of(partition.log.config)
            if settings is None or not self._is_tierable(partition):
                continue
            wanted[partition.topic_id, partition.partition] = Assign(
                partition.topic_id,
                partition.partition,
                partition.leader_epoch,
                topic=partition.topic,
                is_leader=partition.is_leader,
                settings=settings,
                unclean_epoch=partition.unclean_epoch,
            )
        return wanted
