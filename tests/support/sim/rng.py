"""An rng that one seed replays."""

import random
import uuid

from runtime.rng import usable


class SeededRng:
    """The same values for the same seed."""

    __slots__ = ("_random",)

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random(self) -> float:
        """A number in [0, 1)."""
        return self._random.random()

    def uuid(self) -> bytes:
        """16 raw bytes of the next id."""
        while True:
            raw = uuid.UUID(int=self._random.getrandbits(128), version=4).bytes
            if usable(raw):
                return raw
