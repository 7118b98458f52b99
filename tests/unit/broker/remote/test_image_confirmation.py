"""An image is an answer only when no acknowledged change can be missing in it."""

from types import SimpleNamespace

import pytest

from broker.remote.image_confirmation import LeaderEnd, Seen, Verdict, leader_end, validate

LEADER = LeaderEnd(epoch=5, log_end_offset=100)


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (Seen(5, 101, 100), Verdict.ANSWER),
        (Seen(5, 101, 101), Verdict.ANSWER),
        (Seen(5, 100, 100), Verdict.WAIT),  # L itself is not committed: a deposed leader's end
        (Seen(5, 101, 99), Verdict.WAIT),  # record 99 is not applied
        (Seen(5, -1, 0), Verdict.WAIT),
        (Seen(4, 101, 101), Verdict.WAIT),  # this node does not know epoch 5 yet
        (Seen(6, 101, 101), Verdict.ASK_AGAIN),
        (Seen(6, 50, 50), Verdict.ASK_AGAIN),
    ],
)
def test_answered_only_above_the_leaders_end_in_its_epoch(seen: Seen, verdict: Verdict) -> None:
    assert validate(LEADER, seen) is verdict


def test_only_the_leaders_own_entry_counts() -> None:
    voters = [
        SimpleNamespace(replica_id=1, log_end_offset=120),
        SimpleNamespace(replica_id=2, log_end_offset=100),
    ]
    said = SimpleNamespace(error_code=0, leader_id=2, leader_epoch=5, current_voters=voters)
    assert leader_end(said) == LEADER
    said.leader_id = 3
    assert leader_end(said) is None
    said.leader_id, said.error_code = 2, 6
    assert leader_end(said) is None
