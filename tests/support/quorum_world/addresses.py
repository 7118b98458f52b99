"""Where the nodes of a simulated quorum listen, and what settings say of it.

A voter of a static quorum may move: at the address that others know nobody is met then, or another
node. The settings change for all at once, and each node reads them when it starts. In a dynamic
quorum the voters' addresses stand in the log: there an address is only taken for a while, or, where
voters change, a node moves and has to say so itself.
"""

from typing import TYPE_CHECKING, Any

from metadata_topic.raft.messages import Node
from tests.support.quorum_world.plan import PORT, address_of

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode


class Addresses:
    """See the module.

    Attributes:
        settings: `controller.quorum.voters` as it is now.
        changes: how many there were.
    """

    def __init__(self, world: Any) -> None:
        self._world = world
        self.settings = {one: address_of(one) for one in world.plan.voters}
        self.changes = 0
        self._where = {one: address_of(one) for one in world.nodes}
        self._answers = {self._place(node): one for one, node in self._where.items()}
        self._left: set[tuple[str, int]] = set()
        self._former: dict[int, list[Node]] = {one: [] for one in world.nodes}

    @staticmethod
    def _place(node: Node) -> tuple[str, int]:
        return node.host, node.port

    def who_answers(self, to: Node) -> "QuorumNode | None":
        """The node that is met there; None if none listens there any more."""
        place = self._place(to)
        found = self._answers.get(place)
        if found is None:
            assert place in self._left, f"an unknown address: {to}"
            return None
        return self._world.nodes[found]  # type: ignore[no-any-return]

    def is_met_at(self, node: "QuorumNode", to: Node | None) -> bool:
        """Whether a node is where somebody thinks that it is."""
        return to is not None and self._answers.get(self._place(to)) == node.id

    def listens(self, node: "QuorumNode", port: int) -> None:
        """Have a node be met at another port, too, where it stays."""
        self._answers[f"n{node.id}", port] = node.id

    def move(self, node: "QuorumNode", heir: int | None) -> None:
        """Let a voter listen elsewhere, and the settings say so.

        Args:
            node: who moves.
            heir: the node that is met where it was; None if nobody is.
        """
        self.changes += 1
        old = self._where[node.id]
        new = Node(node.id, f"n{node.id}m{self.changes}", PORT)
        self._where[node.id] = self.settings[node.id] = new
        self._answers[self._place(new)] = node.id
        self._left.add(self._place(old))
        self._take(old, heir)

    def where(self, node: "QuorumNode") -> Node:
        """Where a node listens."""
        return self._where[node.id]

    def relocate(self, node: "QuorumNode", heir: int | None) -> None:
        """Let a controller listen elsewhere, of which no settings say anything; `heir` as above."""
        self.changes += 1
        old, new = self._where[node.id], Node(node.id, f"n{node.id}m{self.changes}", PORT)
        self._where[node.id] = new
        self._answers[self._place(new)] = node.id
        self._former[node.id].append(old)
        self._left.add(self._place(old))
        self._take(old, heir)

    def take(self, node: "QuorumNode", heir: int | None) -> None:
        """Let another node be met, or nobody, where one listens."""
        self.changes += 1
        self._left.add(self._place(self._where[node.id]))
        self._take(self._where[node.id], heir)

    def give_back(self, node: "QuorumNode") -> None:
        """Let it be met again where it listens, and has ever been met in a dynamic quorum."""
        self.changes += 1
        for place in (self._where[node.id], *self._former[node.id]):
            self._answers[self._place(place)] = node.id

    def _take(self, place: Node, heir: int | None) -> None:
        if heir is None:
            self._answers.pop(self._place(place), None)
        else:
            self._answers[self._place(place)] = heir
