"""Three controllers and two tiering brokers as processes, lost in turn under continuous load."""

from pathlib import Path

import pytest

from tests.support.quorum.served_rounds import run_rounds
from tests.support.rounds import rounds

ROUNDS = rounds("TIDEMARK_SERVED_ROUNDS", quick=3, full=15)


@pytest.mark.rounds(seconds=120)
@pytest.mark.patience(seconds=180 + 20 * ROUNDS)
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
async def test_no_acknowledged_topic_or_record_is_lost_and_the_tier_is_clean(
    tmp_path: Path, is_dynamic: bool
) -> None:
    """Only processes show what a tier does whose broker, or whose controllers, are killed."""
    report = await run_rounds(tmp_path, is_dynamic=is_dynamic, seed=5 + is_dynamic, rounds=ROUNDS)
    assert report.wrong == []
    assert report.topics > 0
    assert report.records >= 100 * ROUNDS
    assert report.remote_bytes > 0, "the tiers have copied"
