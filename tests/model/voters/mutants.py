"""Every rule excluded, one at a time: a story that breaks a promise, and its bounds."""

from dataclasses import replace

from tests.model.listed import Mutant
from tests.model.voters.rules import Rules
from tests.model.voters.runs import THREE, TWO

FIVE = Rules(voters=(1, 2, 3, 4), observers=(5,), changes=2, crashes=1)

MUTANTS: list[Mutant] = [
    Mutant(
        "a second change beside one that is not committed",
        {"one_at_a_time": False},
        replace(THREE, changes=2),
        "fetch 2 of 1; commit 1; change 1 (1, 3); change 1 (1,); commit 1; elect 2 (2, 3)",
    ),
    Mutant(
        "a change before the leader has committed in its epoch",  # Ongaro, 2015
        {"own_epoch_committed": False},
        FIVE,
        "change 1 (1, 2, 3, 4, 5); fetch 5 of 1; fetch 5 of 1; elect 2 (2, 3, 4); "
        "change 2 (2, 3, 4); fetch 3 of 2; fetch 3 of 2; commit 2; crash 1; elect 1 (1, 4, 5)",
    ),
    Mutant(
        "two voters change at once",
        {"by_one_voter": False},
        Rules(voters=(1,), observers=(2, 3), changes=2),
        "fetch 2 of 1; commit 1; change 1 (2,); fetch 2 of 1; commit 1; change 1 (1,); commit 1; "
        "elect 2 (2,)",
    ),
    Mutant(
        "voters are in force when they are committed",
        {"in_force_when_appended": False},
        replace(TWO, observers=(3,), epochs=3, changes=2, crashes=1),
        "fetch 2 of 1; commit 1; change 1 (2,); fetch 2 of 1; commit 1; change 1 (1, 2); resign 1",
    ),
    Mutant(
        "voters outlive the truncation of their record",
        {"taken_back_by_truncation": False},
        replace(THREE, epochs=4, changes=2),
        "fetch 2 of 1; commit 1; change 1 (1, 2); elect 2 (2, 3); fetch 1 of 2; elect 1 (1, 2); "
        "fetch 2 of 1; commit 1; change 1 (1,); commit 1; elect 2 (2, 3)",
    ),
    Mutant(
        "a voter is an id, whatever disk it has",
        {"directory_ids": False},
        replace(THREE, changes=0, disks=1),
        "fetch 2 of 1; commit 1; disk 1; elect 1 (1, 3)",
    ),
    Mutant(
        "a leader outside the voters counts for the watermark",
        {"leader_outside_not_counted": False},
        replace(TWO, crashes=1),
        "fetch 2 of 1; commit 1; change 1 (2,); commit 1; resign 1",
    ),
    Mutant(
        "a leader that removes itself resigns at once",
        {"leads_until_committed": False},
        replace(TWO, crashes=1),
        why="it stands until its removal is committed, so somebody leads again: an election more",
    ),
    Mutant(
        "who is removed does not stand, though its removal may be taken back",
        {"stands_until_removal_is_committed": False},
        replace(TWO, crashes=1),
        "fetch 2 of 1; commit 1; change 1 (2,); crash 1",
    ),
    Mutant(
        "who does not know that it is a voter grants no vote",
        {"votes_as_an_observer": False},
        replace(TWO, observers=(3,), epochs=3, changes=2, crashes=1),
        "fetch 2 of 1; commit 1; change 1 (1,); commit 1; change 1 (1, 3); crash 1",
    ),
]
