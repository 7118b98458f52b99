"""Explore: `python -m tests.model.replication [--full] [--seconds 600] [part of a name ...]`."""

import sys

from tests.model.command import main
from tests.model.replication.mutants import MUTANTS
from tests.model.replication.runs import RUNS
from tests.model.replication.world import Replication

if __name__ == "__main__":
    sys.exit(main("tests.model.replication", Replication, RUNS, MUTANTS))
