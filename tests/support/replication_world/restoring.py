"""A person who restores partitions of which only the store has records.

As `tidemark remote restore-partition` does it, which asks the leader where the log would begin, and
then orders it. Replicas that may return with records are named as lost.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.replication.restoring import PartitionRestoring
from broker.replication.tier_bootstrap import TierBootstraps
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from rlm.link.messages import Restoration

if TYPE_CHECKING:
    from tests.support.replication_world.clients import DataClients
    from tests.support.replication_world.validator import Told
    from tests.support.replication_world.world import ReplicationWorld

LOOK_US = 1_000_000
LOOKS = 3
"""It waits until it has seen so often that a partition is lost."""
TIMEOUT_MS = 3_000
ASK = 0


class WatchedRestoring(PartitionRestoring):
    """The broker's side, of which the validator hears before anything changes."""

    def __init__(
        self, replicas: ReplicaManager, bootstraps: TierBootstraps, world: "ReplicationWorld"
    ) -> None:
        super().__init__(replicas, bootstraps)
        self._world = world

    async def restore(self, partition: Partition, found: Restoration, end: int) -> None:
        validate = self._world.validator
        told = validate.partitions.get((partition.topic_id, partition.partition))
        if told is not None:
            validate.restores(told, found.begin, end)
        await super().restore(partition, found, end)


class Restorer:
    """The person.

    Attributes:
        restored: how many partitions.
    """

    def __init__(self, clients: "DataClients") -> None:
        self.clients, self.world = clients, clients.world
        self.restored = 0
        self._seen: dict[tuple[bytes, int], int] = {}

    def start(self) -> None:
        """Look now and then, also when all else is over."""
        if self.world.plan.restores:
            self._look()

    def _look(self) -> None:
        self.world.at(self.world.now_us + LOOK_US, self._look)
        for key, told in self.world.validator.partitions.items():
            is_lost = (
                told.gave_up and told.is_tiered and self.world.tier_validator.is_restorable(told)
            )
            self._seen[key] = self._seen.get(key, 0) + 1 if is_lost else 0
            if self._seen[key] >= LOOKS:
                self._seen[key] = 0
                self._order(told, ASK)

    def _order(self, told: "Told", end: int) -> None:
        node, _ = self.clients.line.leader_of(told.name)
        if node is None:
            return
        cls = request(ApiKey.DELETE_RECORDS).cls
        name = told.name
        asked = cls.Topics.Partitions(partition_index=name.partition, offset=0, restore_end=end)
        topic = cls.Topics(name=name.topic, partitions=[asked])
        question = cls(topics=[topic], timeout_ms=TIMEOUT_MS)
        heard = partial(self._heard, told, end)
        self.clients.line.ask(node, ApiKey.DELETE_RECORDS, question, heard)

    def _heard(self, told: "Told", end: int, answer: Any) -> None:
        if answer is None or told.is_removed:
            return
        part = answer.topics[0].partitions[0]
        code = ErrorCode.of(part.error_code)
        self.clients.line.answers[f"restore {code.name}"] += 1
        if code != ErrorCode.NONE:
            return
        if end == ASK:
            self._order(told, part.low_watermark)
        else:
            self.restored += 1
            self.clients.probe(told.name)
