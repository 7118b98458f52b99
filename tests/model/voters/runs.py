"""What is explored: the rules as they are within many bounds."""

from dataclasses import replace

from tests.model.listed import Run
from tests.model.voters.rules import Rules

THREE = Rules()
TWO = Rules(voters=(1, 2), epochs=4)
ONE = Rules(voters=(1,), observers=(2,), epochs=4)

RUNS: list[Run] = [
    Run("one voter and an observer, crash", replace(ONE, changes=3, crashes=1), 9_028),
    Run("one voter, two observers, crash", replace(ONE, observers=(2, 3), changes=2, crashes=1)),
    Run("two voters, crash", replace(TWO, crashes=1), 1_983),
    Run("two voters and an observer, crash", replace(TWO, observers=(3,), changes=2, crashes=1)),
    Run("three voters", THREE, 9_839),
    Run("three voters, two changes", replace(THREE, changes=2)),
    Run("three voters, four epochs", replace(THREE, epochs=4, changes=2)),
    Run("three voters, crash", replace(THREE, crashes=1)),
    Run("three voters and an observer", replace(THREE, observers=(4,))),
    Run("three voters and an observer, two changes", replace(THREE, observers=(4,), changes=2)),
    Run("a lost disk", replace(THREE, changes=0, disks=1), 6_816),
    Run("a lost disk is replaced", replace(THREE, observers=(4,), changes=2, disks=1)),
]
