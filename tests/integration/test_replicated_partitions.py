"""Three brokers with three copies: what is acknowledged stays, whoever is lost.

Only real processes show what a kill leaves in files, and how clients find the next leader.
"""

from pathlib import Path

import pytest

from tests.support.quorum.replica_rounds import apart, combined, run_rounds
from tests.support.rounds import rounds

pytestmark = [pytest.mark.lasts(seconds=150)]

ROUNDS = rounds("TIDEMARK_REPLICA_ROUNDS", quick=5, full=60)


@pytest.mark.parametrize(
    ("starts", "seed"),
    [(apart, 25), (combined, 26)],
    ids=["apart", "combined"],
)
@pytest.mark.rounds(seconds=720)
@pytest.mark.patience(seconds=180 + 30 * ROUNDS)
async def test_brokers_and_controllers_are_lost(tmp_path: Path, starts: object, seed: int) -> None:
    """Five rounds of each seed have all that can be done to a broker and to a controller."""
    async with starts(tmp_path) as cluster:  # type: ignore[operator]
        await run_rounds(cluster, seed=seed, rounds=ROUNDS, say=print)
