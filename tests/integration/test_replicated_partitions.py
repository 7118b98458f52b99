"""Three brokers with three copies: what is acknowledged stays, whoever is lost.

Only real processes show what a kill leaves in files, and how clients find the next leader.
"""

from pathlib import Path

import pytest

from tests.support.quorum.replica_rounds import apart, combined, run_rounds

pytestmark = [pytest.mark.lasts(seconds=150), pytest.mark.patience(seconds=400)]


@pytest.mark.parametrize("starts", [apart, combined], ids=["apart", "combined"])
async def test_brokers_and_controllers_are_lost(tmp_path: Path, starts: object) -> None:
    async with starts(tmp_path) as cluster:  # type: ignore[operator]
        await run_rounds(cluster, seed=1, rounds=6)
