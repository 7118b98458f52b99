"""The logs of a broker whose machine loses power again and again: what was promised is kept.

Checked at every start: all that was flushed is there, unchanged and without holes; the log start
does not go back; topics that were made are there, those deleted are not; the epoch chain says of
each batch what the batch says; a producer's last batch is not taken twice.
"""

from pathlib import Path

import pytest

from tests.support.damage.log_lives import LogLives
from tests.support.rounds import rounds

SEEDS = range(rounds("TIDEMARK_LOG_SEEDS", quick=5, full=15))


@pytest.mark.rounds
@pytest.mark.parametrize("seed", SEEDS)
def test_power_cuts_take_nothing_that_was_promised(tmp_path: Path, seed: int) -> None:
    lives = LogLives(tmp_path, seed)
    for _ in range(12):
        operations = 1 + int(lives.ports.rng.random() ** 2 * 500)
        lives.live(operations if lives.ports.rng.random() < 0.9 else None)
    assert not lives.live(None)
    assert not lives.live(None)
