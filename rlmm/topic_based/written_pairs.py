"""The last pair that this broker wrote under in each user partition, and what of that was lost."""

from rlmm.api import LOWEST_FENCE, Fence
from rlmm.store import PartitionKey


class WrittenPairs:
    """Not thread-safe."""

    __slots__ = ("_spent", "_written")

    def __init__(self) -> None:
        self._written: dict[int, dict[PartitionKey, Fence]] = {}
        self._spent: dict[int, dict[PartitionKey, Fence]] = {}

    def wrote(self, home: int, partition: PartitionKey, fence: Fence) -> None:
        """A record of it went to the port."""
        self._written.setdefault(home, {})[partition] = fence

    def lost(self, home: int) -> None:
        """That metadata partition lost records.

        What was written under these pairs, and the barrier before it, may be lost, while what is
        still under way lands: no barrier of the same pair keeps it out (model story H10).
        """
        self._spent.setdefault(home, {}).update(self._written.get(home, {}))

    def spent(self, home: int, partition: PartitionKey) -> Fence:
        """No barrier is written under this pair or a lower one."""
        return self._spent.get(home, {}).get(partition, LOWEST_FENCE)

    def forget(self, home: int, partition: PartitionKey) -> None:
        """The deletion of the partition is complete: it has no owner any more."""
        self._written.get(home, {}).pop(partition, None)
        self._spent.get(home, {}).pop(partition, None)
