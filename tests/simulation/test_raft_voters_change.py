"""Voters that come and go under crashes, losses and elections: long random ways of five cores.

python -m tests.support.raft.voter_walks --seeds 100
"""

import pytest

from tests.support.raft.small_scope import Bounds
from tests.support.raft.voter_walks import STATIC, WALKED, walk

STEPS = 1_500


@pytest.mark.parametrize(("seed", "bounds"), [(0, WALKED), (4, WALKED), (0, STATIC)], ids=str)
def test_a_long_way_breaks_no_rule(seed: int, bounds: Bounds) -> None:
    walked = walk(seed, STEPS, bounds)
    assert walked.violation is None, "\n".join((*walked.story, str(walked.violation)))
    assert walked.leaders >= 2
    assert len(walked.voters) >= 5, "nothing much has changed"
    for old, new in zip(walked.voters, walked.voters[1:], strict=False):
        assert len(set(old.ids) ^ set(new.ids)) == 1, "one voter at a time"
