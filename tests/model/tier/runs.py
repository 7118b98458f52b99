"""What is explored: the rules as they are within many bounds, and what is known not to hold."""

from dataclasses import replace

from tests.model.listed import Run
from tests.model.tier.rules import Rules

ONE = Rules(records=1)
BEHIND = Rules(logs=((1, 1), (1,)), in_sync=(0,), unclean=1, segments=2)
"""B has not fetched the second record, and may be elected uncleanly."""
COPIED = replace(BEHIND, copied=((0, (1,)), (1, (1, 1))))
AWAY = Rules(logs=((1, 1), ()), in_sync=(0,), copied=((0, (1,)), (1, (1, 1))), local_starts=(2, 0))
"""A has nothing local any more, B nothing at all."""
BORDERS = replace(AWAY, copied=((0, (1, 1)),), local_starts=(1, 0), records=3)
"""Another leader closed its segments elsewhere: A's local start lies within a remote segment."""
PART = replace(
    BEHIND, copied=((0, (1, 1)),), roll=(2, 1), disks=1, segments=4, expires=(False, True)
)
"""B's log has a part of a remote segment, if it is elected uncleanly."""

CLIPPED = replace(
    ONE,
    logs=((1, 1), (1, 1)),
    copied=((0, (1,)),),
    local_starts=(1, 1),
    expires=(False, True),
    segments=2,
    raises=1,
    moves=1,
    shrinks=1,
    disks=1,
)
"""A segment may be copied under a log start that the next leader does not know yet."""

RUNS: list[Run] = [
    Run("nothing happens", Rules(records=3), 700),
    Run("leader moves", Rules(moves=1)),
    Run("leader moves there and back", replace(ONE, moves=2, epochs=3, segments=2)),
    Run("kill", Rules(kills=1, epochs=3)),
    Run("tier ends", Rules(tiers=1), 3_837),
    Run("tier ends, readers behind", replace(ONE, tiers=1, lag=1), 832),
    Run("leader moves, readers behind", replace(ONE, moves=1, lag=1), 1_878),
    Run("retention", Rules(raises=1), 3_170),
    Run("retention, leader moves", replace(ONE, raises=1, moves=1), 5_572),
    Run("records deleted", Rules(deletes=1), 4_753),
    Run(
        "records deleted within a segment",
        Rules(logs=((1, 1), (1, 1)), copied=((0, (1, 1)),), roll=(2, 1), deletes=1),
        278,
    ),
    Run("records deleted, leader moves", replace(ONE, deletes=1, moves=1), 10_608),
    Run(
        "records deleted while the follower is away, leader moves",
        Rules(logs=((1, 1), (1, 1)), in_sync=(0,), deletes=1, moves=1, segments=2),
    ),
    Run("late reports, leader moves", replace(ONE, late_reports=1, moves=1), 4_576),
    Run("power cut", replace(ONE, power_cuts=1), 28),
    Run("metadata topic loses records", replace(ONE, losses=1, segments=2), 266),
    Run(
        "metadata topic loses records, leader moves",
        replace(ONE, losses=1, moves=1, segments=2),
    ),
    Run("new disk", Rules(disks=1, shrinks=1, segments=2), 1_361),
    Run("unclean election", BEHIND),
    Run("unclean election, three records", replace(BEHIND, records=3, segments=3)),
    Run("unclean election, leader moves", replace(BEHIND, moves=1, epochs=3)),
    Run("records deleted, unclean election", replace(COPIED, deletes=1)),
    Run(
        "records deleted, unclean election, leader moves (F9)",
        replace(COPIED, deletes=1, moves=1, epochs=3),
        broken=True,
    ),
    Run("retention, unclean election", replace(BEHIND, logs=((1, 1), (1, 1)), raises=1)),
    Run("unclean election, late reports", replace(COPIED, late_reports=1), 6_592),
    Run("lineage returns", replace(COPIED, unclean=2, epochs=3), 9_067),
    Run(
        "lineage returns, other borders",
        replace(PART, disks=0, unclean=2, epochs=3, expires=(True, True), segments=3),
    ),
    Run("bootstrap", replace(AWAY, records=3), 268),
    Run("bootstrap, kill", replace(AWAY, kills=1, epochs=3), 183),
    Run("bootstrap, unclean election", replace(AWAY, logs=((1, 1), (1,)), unclean=1, records=3)),
    Run("bootstrap, kill, leader moves", replace(AWAY, kills=1, moves=1, epochs=4)),
    Run("bootstrap, late report, leader moves", replace(AWAY, late_reports=1, moves=1)),
    Run(
        "bootstrap, unclean election, kill",
        replace(AWAY, logs=((1, 1), (1,)), unclean=1, kills=1, epochs=3),
    ),
    Run(
        "bootstrap, unclean election, retention",
        replace(AWAY, logs=((1, 1), (1,)), unclean=1, raises=1),
    ),
    Run(
        "bootstrap, unclean election, records deleted",
        replace(AWAY, logs=((1, 1), (1,)), unclean=1, deletes=1),
    ),
    Run("bootstrap, retention", replace(AWAY, raises=1), 704),
    Run("bootstrap, records deleted", replace(AWAY, deletes=1), 704),
    Run("bootstrap, retention, leader moves", CLIPPED),
    Run("bootstrap, other borders, leader moves", replace(BORDERS, moves=1), 3_800),
    Run("bootstrap, a segment that is in part on the chain", PART, 1_023),
    Run(
        "bootstrap, a segment that is in part on the chain, leader moves",
        replace(PART, moves=1, epochs=3),
    ),
    Run(
        "a bootstrap takes a segment that ends off the chain",
        replace(PART, whole_on_chain=False, whole_segments=False),
        1_132,
        broken=True,
    ),
]
