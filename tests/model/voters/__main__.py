"""Explore: `python -m tests.model.voters [--full] [--seconds 600] [part of a name ...]`."""

import sys

from tests.model.command import main
from tests.model.voters.mutants import MUTANTS
from tests.model.voters.runs import RUNS
from tests.model.voters.world import ChangingVoters

if __name__ == "__main__":
    sys.exit(main("tests.model.voters", ChangingVoters, RUNS, MUTANTS))
