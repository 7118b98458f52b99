"""Voters that come and go under crashes, losses and elections: long random ways of five cores.

python -m tests.support.raft.voter_walks --seeds 100
"""

import pytest

from tests.support.raft.voter_walks import walk

STEPS = 1_500


@pytest.mark.parametrize("seed", [0, 4])
def test_a_long_way_breaks_no_rule(seed: int) -> None:
    walked = walk(seed, STEPS)
    assert walked.violation is None, "\n".join((*walked.story, str(walked.violation)))
    assert walked.leaders >= 2
    assert len(walked.voters) >= 5, "nothing much has changed"
    for old, new in zip(walked.voters, walked.voters[1:], strict=False):
        assert len(set(old.ids) ^ set(new.ids)) == 1, "one voter at a time"
