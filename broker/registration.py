"""How this broker enters and leaves the cluster metadata.

Registering fences whatever an earlier life of this node id led (each of its partitions goes up one
leader epoch); unfencing elects it again (one more). So leader epochs rise by two at each restart,
as in Kafka, whether it was stopped or killed.
"""

import logging
from typing import Final

from broker.topic_creation import Submit
from metadata_topic.controller.brokers import (
    Registration,
    begin_controlled_shutdown,
    register_broker,
    unfence_broker,
)
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage

log = logging.getLogger(__name__)

_NOT_REGISTERED: Final = -1


class BrokerRegistration:
    """One life of a broker in the cluster metadata.

    Attributes:
        epoch: offset of this life's registration; -1 before.
    """

    def __init__(self, submit: Submit, registration: Registration) -> None:
        self._submit = submit
        self._registration = registration
        self.epoch = _NOT_REGISTERED

    async def register(self) -> int:
        """Register, fenced: nothing is led yet.

        Returns:
            The broker epoch of this life.

        Raises:
            DuplicateBrokerRegistrationError: another live process has this node id.
        """

        def decide(image: MetadataImage) -> ControllerResult[int]:
            return register_broker(image, self._registration)

        self.epoch = await self._submit(decide)
        log.info("registered: node_id=%d broker_epoch=%d", self._registration.node_id, self.epoch)
        return self.epoch

    async def unfence(self) -> None:
        """Say that this broker has caught up: it leads what it may lead from now on."""
        node_id, epoch = self._registration.node_id, self.epoch

        def decide(image: MetadataImage) -> ControllerResult[None]:
            return unfence_broker(image, broker_id=node_id, broker_epoch=epoch)

        await self._submit(decide)

    async def leave(self) -> None:
        """Give up all leadership before a clean stop."""
        if self.epoch == _NOT_REGISTERED:
            return
        node_id, epoch = self._registration.node_id, self.epoch

        def decide(image: MetadataImage) -> ControllerResult[None]:
            return begin_controlled_shutdown(image, broker_id=node_id, broker_epoch=epoch)

        await self._submit(decide)
