"""What is explored: the rules as they are within many bounds, and what is known not to hold."""

from dataclasses import replace

from tests.model.listed import Run
from tests.model.replication.rules import Rules

SMALL = Rules(records=2, epochs=3)
WIDE = replace(SMALL, epochs=5)
THREE = replace(SMALL, replicas=3, is_symmetric=True)

KILLED_IS_UNCLEAN = replace(WIDE, kills=1, cuts=1, same_boot_is_clean=False)
TWO_CUTS = replace(WIDE, cuts=2)

RUNS: list[Run] = [
    # What the rules as the issue has them do not cover: README.md, Findings.
    Run("as written: killed, then a power cut", KILLED_IS_UNCLEAN, 728, broken=True),
    Run("as written: two power cuts, one took nothing", TWO_CUTS, 1_667, broken=True),
    Run(
        "no ELR, power cut before the leader sees",
        replace(WIDE, epochs=4, elr=False, cuts=1, fences=1),
        85,
        broken=True,
    ),
    # Two remedies.
    Run("no last known leader: killed", replace(KILLED_IS_UNCLEAN, last_known_leads=False)),
    Run("no last known leader: two cuts", replace(TWO_CUTS, last_known_leads=False), 9_722),
    Run("the longest leads: killed", replace(KILLED_IS_UNCLEAN, last_known_leads="longest")),
    Run("the longest leads: two cuts", replace(TWO_CUTS, last_known_leads="longest"), 13_154),
    Run(
        "the longest leads: killed, two cuts",
        replace(KILLED_IS_UNCLEAN, cuts=2, epochs=6, last_known_leads="longest"),
    ),
    # The rules, with a killed process on a machine that runs on counted as cleanly ended.
    Run("kills, no answer", replace(SMALL, kills=1, fences=1, lost_answers=1)),
    Run(
        "the same, min 1",
        replace(SMALL, epochs=4, kills=1, fences=1, lost_answers=1, min_isr=1),
        10_223,
    ),
    Run("kill, power cut", replace(WIDE, kills=1, cuts=1), 19_198),
    Run("power cut, fenced alive", replace(WIDE, cuts=1, fences=1)),
    Run("power cut, no answer", replace(WIDE, cuts=1, fences=1, lost_answers=1)),
    Run("stop, power cut", replace(WIDE, epochs=4, stops=1, cuts=1)),
    Run("new disk, kill", replace(WIDE, disks=1, kills=1), 831),
    Run("new disk, kills", replace(WIDE, disks=1, kills=2), 13_358),
    Run("new disk, stop", replace(WIDE, disks=1, kills=1, stops=1)),
    Run(
        "records deleted", replace(SMALL, records=1, epochs=4, deletes=1, kills=1, fences=1), 4_235
    ),
    Run(
        "records deleted, min 1",
        replace(
            SMALL, records=1, epochs=4, deletes=1, kills=1, fences=1, lost_answers=1, min_isr=1
        ),
        8_056,
    ),
    Run(
        "records deleted, stop, power cut",
        replace(SMALL, records=1, epochs=4, deletes=1, kills=1, stops=1, cuts=1),
    ),
    Run("leader moves, kill", replace(WIDE, records=3, begins_with=0, moves=2, kills=1)),
    Run("late Fetches", replace(SMALL, late_fetches=1, lost_answers=1, kills=1, fences=1)),
    Run(
        "unclean elections, min 1",
        replace(WIDE, unclean=True, kills=1, fences=1, min_isr=1),
        12_781,
    ),
    Run(
        "unclean elections, three records",
        replace(WIDE, records=3, unclean=True, kills=1, fences=1, min_isr=1),
    ),
    Run("no ELR, kills", replace(WIDE, epochs=4, elr=False, kills=2), 4_347),
    Run("no ELR, power cut", replace(WIDE, epochs=4, elr=False, cuts=1, lost_answers=1), 3_417),
    Run(
        "no ELR, power cut, three records",
        replace(SMALL, records=3, elr=False, cuts=1, lost_answers=1),
        24_238,
    ),
    Run("three replicas, kill", replace(THREE, kills=1)),
    Run("three replicas, no answer", replace(THREE, fences=1, lost_answers=1)),
    Run("three replicas, kill, fenced alive", replace(THREE, kills=1, fences=1)),
    Run("three replicas, power cut", replace(THREE, cuts=1, kills=1)),
    Run("three replicas, power cuts", replace(THREE, cuts=2, records=1)),
    Run("three replicas, leader moves", replace(THREE, epochs=4, moves=2)),
]
