"""The command `tier`: all records of a topic are copied to the remote tier and removed locally.

So a test reads from the remote store at once, without small segments and short retention.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from broker.remote.tier import RemoteTier
from broker.replica.manager import ReplicaManager
from broker.testing.control.commands import ControlError, number_of, text_of
from kafka_protocol.types import TopicPartition
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dirs import LogManager
from rlm.link.endpoint import LinkEndedError
from runtime.clock import Clock

TIMEOUT_MS: Final = 60_000
_AGAIN_S: Final = 0.05
_POLL_S: Final = 0.001


class TierTopic:
    """Rolls, waits for the copies, and removes the local segments."""

    def __init__(
        self, replicas: ReplicaManager, logs: LogManager, tier: RemoteTier | None, clock: Clock
    ) -> None:
        self._replicas, self._logs = replicas, logs
        self._tier, self._clock = tier, clock

    async def command(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Tier a `topic`; answers by partition which offsets were copied, and the local start.

        Raises:
            ControlError: There is no such topic, it is not tiered, or it takes too long.
        """
        topic, timeout_ms = (
            text_of(arguments, "topic"),
            number_of(arguments, "timeout_ms", TIMEOUT_MS),
        )
        logs = self._logs_of(topic)
        before = {index: log.copied_through for index, log in logs.items()}
        ends = {index: self._roll(log) for index, log in logs.items()}
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._copied(logs, ends)
                await self._released(logs, ends)
        except TimeoutError:
            raise ControlError(self._late(topic, timeout_ms, logs, ends), 409) from None
        return {
            "partitions": [
                {
                    "partition": index,
                    "copied_from": max(before[index] + 1, 0),
                    "copied_through": log.copied_through,
                    "log_start_offset": log.log_start_offset,
                    "local_log_start_offset": log.local_log_start_offset,
                    "log_end_offset": log.log_end_offset,
                }
                for index, log in sorted(logs.items())
            ]
        }

    def _logs_of(self, topic: str) -> dict[int, PartitionLog]:
        found = {
            tp.partition: partition
            for tp, partition in self._replicas.partitions.items()
            if tp.topic == topic
        }
        if not found:
            raise ControlError(f"there is no topic {topic[:249]!r} here", 404)
        logs = {index: partition.log for index, partition in found.items()}
        if self._tier is None or not all(log.config.copies_to_remote for log in logs.values()):
            raise ControlError(
                f"the topic {topic} is not copied to the remote tier: create it with "
                "remote.storage.enable=true, and not with remote.log.copy.disable=true"
            )
        return logs

    def _roll(self, log: PartitionLog) -> int:
        """Close the active segment; returns the log end, up to which all is to be copied."""
        log.roll(self._clock.wall_ms())
        return log.log_end_offset

    async def _copied(self, logs: Mapping[int, PartitionLog], ends: Mapping[int, int]) -> None:
        assert self._tier is not None
        while any(not _is_copied(log, ends[index]) for index, log in logs.items()):
            try:
                await self._tier.run_passes()
            except LinkEndedError:
                await asyncio.sleep(_AGAIN_S)  # the next tier process will copy
                continue
            if any(not _is_copied(log, ends[index]) for index, log in logs.items()):
                await asyncio.sleep(_AGAIN_S)  # for example, the tier is not the owner yet

    async def _released(self, logs: Mapping[int, PartitionLog], ends: Mapping[int, int]) -> None:
        while any(log.local_log_start_offset < ends[index] for index, log in logs.items()):
            over = asyncio.Event()
            self._logs.retention.run(
                list(logs.values()), self._clock.wall_ms(), ended=over.set, release_copied=True
            )
            await over.wait()
            await asyncio.sleep(_POLL_S)

    def _late(
        self,
        topic: str,
        timeout_ms: int,
        logs: Mapping[int, PartitionLog],
        ends: Mapping[int, int],
    ) -> str:
        open_ = [
            f"{TopicPartition(topic, index)} is copied through {log.copied_through} of "
            f"{ends[index] - 1}"
            for index, log in sorted(logs.items())
            if not _is_copied(log, ends[index])
        ]
        assert self._tier is not None
        why = "; ".join([*open_[:5], *self._tier.state().reasons[:5]])
        return f"not tiered within {timeout_ms} ms: {why or 'local segments stay'}"


def _is_copied(log: PartitionLog, end: int) -> bool:
    return log.copied_through >= end - 1 or log.log_start_offset >= end
