"""Explore: `python -m tests.model.tier [--full] [--seconds 600] [part of a name ...]`."""

import sys

from tests.model.command import main
from tests.model.tier.mutants import MUTANTS
from tests.model.tier.runs import RUNS
from tests.model.tier.world import Tiering

if __name__ == "__main__":
    sys.exit(main("tests.model.tier", Tiering, RUNS, MUTANTS))
