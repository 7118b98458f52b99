"""One life of a broker in the cluster metadata, as the rest of the broker sees it."""

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from kafka_protocol.errors import KafkaError
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.leader_epochs import UsedEpoch

NOT_REGISTERED: Final = -1
NONE: Final[Mapping[ReplicaId, bytes]] = {}


class BrokerLife(Protocol):
    """How a broker enters and leaves the metadata, and what else it asks the controller.

    Attributes:
        epoch: offset of this life's registration; -1 before.
        on_assignment_failed: called with replicas whose directory could not be noted, and why.
    """

    epoch: int
    on_assignment_failed: Callable[[Collection[ReplicaId], KafkaError], None]

    async def register(
        self,
        found: Mapping[ReplicaId, bytes],
        *,
        refused: Mapping[ReplicaId, bytes] = NONE,
        is_missing_some: bool = False,
    ) -> int:
        """Register, fenced; returns the broker epoch."""
        ...

    async def unfence(self) -> None:
        """Say that this broker has caught up: it leads what it may lead from now on."""
        ...

    async def come_back(self) -> None:
        """Serve again after this broker was fenced, or has registered anew."""
        ...

    def assign(self, assignments: Mapping[ReplicaId, bytes]) -> None:
        """Note in the metadata in which log directories new replicas were made; does not wait."""
        ...

    async def raise_leader_epochs(
        self, found: Mapping[ReplicaId, UsedEpoch]
    ) -> Mapping[ReplicaId, KafkaError]:
        """Have leader epochs raised; returns why of each partition that is refused."""
        ...

    async def producer_ids(self, used: int) -> tuple[int, int]:
        """Take a block of producer ids: the first one, and the end (exclusive).

        Args:
            used: the highest id that this broker's logs know; -1 for none.
        """
        ...

    async def leave(self) -> None:
        """Give up all leadership before a clean stop."""
        ...
