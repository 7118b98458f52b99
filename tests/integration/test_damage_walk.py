"""Random damages, kills and clients: every record is served right or refused by name.

TIDEMARK_WALK_ROUNDS=500 walks further, TIDEMARK_WALK_SEED=7 another way (0: any), and
TIDEMARK_WALK_ONLY="object lost" does one kind of damage only.
"""

import os
import shutil
from pathlib import Path
from random import Random

import pytest
from walk_rounds import Walk, replay_line

ROUNDS = int(os.environ.get("TIDEMARK_WALK_ROUNDS", "20"))
SEED = int(os.environ.get("TIDEMARK_WALK_SEED", "51")) or Random().randrange(1, 1_000_000)
ONLY = os.environ.get("TIDEMARK_WALK_ONLY", "")


@pytest.mark.slow
@pytest.mark.timeout(180 + 60 * ROUNDS)
def test_damages_on_the_way_lose_nothing_and_delete_nothing(tmp_path: Path) -> None:
    walk = Walk(tmp_path, SEED, only=ONLY)
    try:
        walk.prepare()
        for number in range(ROUNDS):
            print(replay_line(SEED, number + 1))
            walk.round(number)
        walk.finish()
    finally:
        walk.broker.close()
        print(walk.broker.log_tail(150))
        for title, counted in (
            ("damages", walk.damages),
            ("outcomes", walk.outcomes),
            ("deletions", walk.counting.explained),
        ):
            print(f"{title}: {dict(counted.most_common())}")
    shutil.rmtree(tmp_path)
