"""What was read once and is kept, up to a size: the values that were used last."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Values by key; the least recently used ones go when their weights add up to too much."""

    def __init__(self, weight_max: int) -> None:
        """Nothing is kept yet.

        Args:
            weight_max: of all values together (inclusive).
        """
        self._weight_max = weight_max
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.weight = 0

    def __contains__(self, key: K) -> bool:
        """Whether `get` finds it; counts as no use."""
        return key in self._kept

    def get(self, key: K) -> V:
        """The value; it was used now.

        Raises:
            KeyError: it is not there, or not any more.
        """
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """Keep it, if it is not too heavy alone."""
        self._drop(key)
        if weight > self._weight_max:
            return
        self._kept[key] = value, weight
        self.weight += weight
        while self.weight > self._weight_max:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: K) -> None:
        _, weight = self._kept.pop(key, (None, 0))
        self.weight -= weight
