"""Stories of a simulated quorum, told again exactly: commands and what comes of them.

pytest tests/simulation/test_raft_stories.py --rewrite-stories    # after a wanted change
"""

from pathlib import Path

import pytest

from tests.support.quorum_world.stories import Teller

STORIES = sorted((Path(__file__).parent / "raft_stories").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_goes_as_told(request: pytest.FixtureRequest, path: Path) -> None:
    told = path.read_text()
    now = Teller().tell(told)
    if request.config.getoption("--rewrite-stories", default=False):
        path.write_text(now)
    else:
        assert now.splitlines() == told.splitlines()
