"""All runs, in the order of their groups."""

from tier_model.runs_damage import DAMAGE, DAMAGE_MUTANTS
from tier_model.runs_more import MORE
from tier_model.runs_operation import OPERATION, OPERATION_MUTANTS
from tier_model.shapes import Run

RUNS: tuple[Run, ...] = (*OPERATION_MUTANTS, *OPERATION, *DAMAGE_MUTANTS, *DAMAGE, *MORE)
