"""What the simulated quorum is asked to do, and what is validated by those who ask."""

from typing import TYPE_CHECKING

from tests.support.quorum_world.brokers import Brokers
from tests.support.quorum_world.clients import Clients
from tests.support.quorum_world.errors import Violation

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode
    from tests.support.quorum_world.world import QuorumWorld


class Workload:
    """Clients and brokers."""

    def __init__(self, world: "QuorumWorld") -> None:
        self.world = world
        self.clients = Clients(world)
        self.brokers = Brokers(world)

    def start(self) -> None:
        """Begin."""
        if self.world.plan.propose_every_ms:
            self.clients.start()
        self.brokers.start()

    def stop(self) -> None:
        """Ask for nothing more."""
        self.clients.stop()
        self.brokers.is_over = True

    def validate(self, node: "QuorumNode") -> None:
        """Look at a node after its turn: a new controller has everything that was answered."""
        replica = node.replica
        if replica is None or not replica.controller.is_active:
            return
        epoch = node.core.epoch
        if node.active_epoch == epoch:
            return
        node.active_epoch = epoch
        self.brokers.note_active(node, epoch)
        self.clients.validate_whole()
        if epoch < self.world.oracle.newest_epoch:
            return  # deposed, and does not know it yet
        reference = self.world.oracle.reference
        if replica.image.provenance.end_offset < reference.provenance.end_offset:
            raise Violation(
                "a new controller has all that was answered",
                f"{node} in {epoch}: {replica.image.provenance}, {reference.provenance}",
            )

    def validate_end(self) -> None:
        """Every call was answered, and what was told can have happened."""
        self.clients.validate_open()
        self.clients.validate_whole()
        self.clients.validate_history()
