"""A map of bounded size for many threads: what was not used for longest goes first."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedMap(Generic[K, V]):
    """Remembers at most `count_max` values."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value, which counts as used now; None if it is not remembered."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._count_max:
                self._values.popitem(last=False)

    def pop(self, key: K) -> None:
        """Forget a value, if it is remembered."""
        with self._lock:
            self._values.pop(key, None)
