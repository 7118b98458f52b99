"""How this broker enters and leaves the cluster metadata, and what else it asks the controller.

Registering fences whatever an earlier life of this node id led (each of its partitions goes up one
leader epoch); unfencing elects it again (one more). So leader epochs rise by two at each restart,
as in Kafka, whether it was stopped or killed.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from broker.node.broker_life import NONE, NOT_REGISTERED
from broker.topics.creation import Submit
from kafka_protocol.errors import KafkaError
from kafka_protocol.steps import Steps
from metadata_topic.controller.brokers import (
    Registration,
    begin_controlled_shutdown,
    register_broker,
    unfence_broker,
)
from metadata_topic.controller.directories import (
    ReplicaId,
    assign_directories,
    records_at_registration,
)
from metadata_topic.controller.leader_epochs import UsedEpoch, raise_leader_epochs
from metadata_topic.controller.producer_ids import ProducerIdBlock, allocate_producer_ids
from metadata_topic.controller.result import ControllerResult, Decided
from metadata_topic.image.image import MetadataImage

log = logging.getLogger(__name__)


class BrokerRegistration:
    """One life of a broker in the cluster metadata.

    Attributes:
        epoch: offset of this life's registration; -1 before.
        on_assignment_failed: called with replicas whose directory could not be noted, and why.
    """

    def __init__(self, submit: Submit, registration: Registration) -> None:
        self._submit = submit
        self._registration = registration
        self.epoch = NOT_REGISTERED
        self._assigning: set[asyncio.Task[None]] = set()
        self.on_assignment_failed: Callable[[Collection[ReplicaId], KafkaError], None] = (
            lambda _replicas, _error: None
        )

    async def register(
        self,
        found: Mapping[ReplicaId, bytes],
        *,
        refused: Mapping[ReplicaId, bytes] = NONE,
        is_missing_some: bool = False,
    ) -> int:
        """Register, fenced: nothing is led yet; and note where the replicas were found.

        One decision: a broker that is registered as one that keeps the order of `directories` must
        not have served replicas without a directory.

        Args:
            found: directory id of each replica whose log is open.
            refused: of each whose files are here and cannot be used.
            is_missing_some: a log directory is not there or does not work.

        Returns:
            The broker epoch of this life.

        Raises:
            DuplicateBrokerRegistrationError: another live process has this node id.
        """

        def decide(image: MetadataImage) -> Steps[ControllerResult[int]]:
            registered = yield from register_broker.steps(image, self._registration)
            node_id = self._registration.node_id
            noted = yield from records_at_registration.steps(
                image, node_id, found=found, refused=refused, is_missing_some=is_missing_some
            )
            return ControllerResult((*registered.records, *noted), registered.response)

        self.epoch = await self._submit(decide)
        log.info("registered: node_id=%d broker_epoch=%d", self._registration.node_id, self.epoch)
        return self.epoch

    async def unfence(self) -> None:
        """Say that this broker has caught up: it leads what it may lead from now on."""
        node_id, epoch = self._registration.node_id, self.epoch

        def decide(image: MetadataImage) -> Decided[None]:
            return unfence_broker.steps(image, broker_id=node_id, broker_epoch=epoch)

        await self._submit(decide)

    async def come_back(self) -> None:
        """Unfence again."""
        await self.unfence()

    def assign(self, assignments: Mapping[ReplicaId, bytes]) -> None:
        """Note in the metadata in which log directories new replicas were made; does not wait."""
        task = asyncio.ensure_future(self._assign(assignments))
        self._assigning.add(task)
        task.add_done_callback(self._assigning.discard)

    async def _assign(self, assignments: Mapping[ReplicaId, bytes]) -> None:
        node_id, epoch = self._registration.node_id, self.epoch

        def decide(image: MetadataImage) -> Decided[None]:
            return assign_directories.steps(
                image, broker_id=node_id, broker_epoch=epoch, assignments=assignments
            )

        try:
            await self._submit(decide)
        except KafkaError as error:
            log.error("log directories of new replicas could not be noted: %s", error)  # noqa: TRY400
            self.on_assignment_failed(assignments.keys(), error)

    async def raise_leader_epochs(
        self, found: Mapping[ReplicaId, UsedEpoch]
    ) -> Mapping[ReplicaId, KafkaError]:
        """Have the controller give leader epochs above those that were used before.

        Returns:
            Why, of each partition that it refuses.
        """
        node_id, epoch = self._registration.node_id, self.epoch

        def decide(image: MetadataImage) -> Decided[dict[ReplicaId, KafkaError]]:
            return raise_leader_epochs.steps(
                image, broker_id=node_id, broker_epoch=epoch, found=found
            )

        return await self._submit(decide)

    async def producer_ids(self, used: int) -> tuple[int, int]:
        """Take a block of producer ids above `used`: the first one, and the end (exclusive)."""
        node_id, epoch = self._registration.node_id, self.epoch

        def decide(image: MetadataImage) -> ControllerResult[ProducerIdBlock]:
            return allocate_producer_ids(image, broker_id=node_id, broker_epoch=epoch, used=used)

        block: ProducerIdBlock = await self._submit(decide)
        return block.first_id, block.end_id

    async def leave(self) -> None:
        """Give up all leadership before a clean stop."""
        if self.epoch == NOT_REGISTERED:
            return
        node_id, epoch = self._registration.node_id, self.epoch

        def decide(image: MetadataImage) -> Decided[None]:
            return begin_controlled_shutdown.steps(image, broker_id=node_id, broker_epoch=epoch)

        await self._submit(decide)
