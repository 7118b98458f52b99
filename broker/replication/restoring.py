"""A led partition without any local copy begins again above all assigned offsets.

The tier has found that the log here is empty and that remote records prove assigned offsets. Only
an operator can say that no other replica will return with records, so it begins on an order alone.
"""

import asyncio

import msgspec

from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.replication.following import LocalStart, Stop, Wait
from broker.replication.tier_bootstrap import TierBootstrap, TierBootstraps
from kafka_protocol.errors import ApiError, ErrorCode
from rlm.link.messages import Restoration


class PartitionRestoring:
    """Restores led partitions; use it from the event loop's thread only."""

    def __init__(self, replicas: ReplicaManager, bootstraps: TierBootstraps) -> None:
        """Restore partitions that `replicas` leads."""
        self._replicas, self._bootstraps = replicas, bootstraps

    def found(self, topic: str, index: int) -> tuple[Partition, Restoration]:
        """The partition, and the place where its log would begin.

        Raises:
            KafkaError: From `ReplicaManager.require`; it is not led here.
            ApiError: INVALID_REQUEST: the tier has not found that all its local copies are lost.
        """
        partition = self._replicas.require(topic, index)
        partition.check_leader(-1)
        if partition.restoration is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"the remote tier has not found that {topic}-{index} lost its local copies",
            )
        return partition, partition.restoration

    async def restore(self, partition: Partition, found: Restoration, end: int) -> None:
        """Let the log begin there; returns when it does, and is durable.

        Args:
            partition: To restore.
            found: From `found`.
            end: Offset of the first new record, at or above the end that is proved.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER: it has another role by now. KAFKA_STORAGE_ERROR: the
                remote tier does not give the state, or the disk failed.
        """
        epoch, old = partition.leader_epoch, partition.log
        done: asyncio.Future[Wait | Stop | None] = asyncio.get_running_loop().create_future()

        def is_current() -> bool:
            is_led = partition.is_leader and partition.leader_epoch == epoch
            return is_led and partition.log is old and partition.restoration == found

        def ended(outcome: Wait | Stop | None) -> None:
            self._replicas.serve_again(partition.topic_partition)
            if not done.done():
                done.set_result(outcome)

        theirs = LocalStart(found.begin, found.epoch_below, 0)
        restoration = msgspec.structs.replace(found, end=end)
        self._bootstraps.begin(TierBootstrap(partition, theirs, is_current, ended, restoration))
        outcome = await done
        if outcome is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, outcome.reason)
        if partition.log is old:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it has another role by now")
