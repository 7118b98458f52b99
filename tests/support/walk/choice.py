"""Which story a round tells: the one that was told least comes first, so that none is left out."""

from collections import Counter
from random import Random

from tests.support.brokers.traffic import Lane
from tests.support.walk.backups import broker_put_back, metadata_put_back, remote_metadata_put_back
from tests.support.walk.stories import (
    Maker,
    Scene,
    Story,
    chain_lost,
    incarnation_put_back,
    partition_put_back,
)

REMOTE_METADATA_STORY = "remote metadata put back"
STORIES: dict[str, Maker] = {
    "chain and its indexes lost": chain_lost,
    "partition put back": partition_put_back,
    "metadata log put back": metadata_put_back,
    "broker put back": broker_put_back,
    REMOTE_METADATA_STORY: remote_metadata_put_back,
    "counter of the tier put back": incarnation_put_back,
}
EVERY = 3
"""Of so many rounds the last one tells a story, and the one before it prepares the ground."""


def is_prelude(number: int) -> bool:
    """Whether all is whole after this round: the next one tells a story."""
    return number % EVERY == EVERY - 2


class Choice:
    """Chooses by dice.

    Attributes:
        told: how often each story was begun.
    """

    def __init__(self, scene: Scene, only: str = "") -> None:
        self._scene = scene
        self._only = only
        self.told: Counter[str] = Counter()

    def choose(self, number: int, dice: Random, spared: set[Lane]) -> Story | None:
        """Damage something as a story begins; None: no story in this round."""
        if number % EVERY != EVERY - 1:
            return None
        wanted = self._wanted()
        dice.shuffle(wanted)
        for kind in sorted(wanted, key=self.told.__getitem__):
            story = STORIES[kind](self._scene, dice, spared)
            if story is not None:
                self.told[kind] += 1
                return story
        return None

    def untold(self, rounds: int) -> list[str]:
        """Stories that so many rounds had room for, and that were not told."""
        left = [kind for kind in self._wanted() if not self.told[kind]]
        return left if rounds // EVERY >= len(self._wanted()) else []

    def _wanted(self) -> list[str]:
        return [kind for kind in STORIES if kind.startswith(tuple(self._only.split("|")))]
