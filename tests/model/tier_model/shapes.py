"""A run, and beginnings that several runs share."""

from typing import Any, NamedTuple

from tier_model.claim_state import ClaimSetup
from tier_model.claims import TwoMachines
from tier_model.explore import Model
from tier_model.remover import TopicDeletion
from tier_model.remover_state import RemoverSetup
from tier_model.setup import Setup
from tier_model.tier import Tier

Shape = dict[str, Any]


class Run(NamedTuple):
    """Bounds and rules under a name. `caught`: a mutant, a counterexample is expected."""

    name: str
    kind: str  # tier | deletion | claim
    rules: Shape
    caught: bool

    @property
    def id(self) -> str:
        return self.name.split()[0]

    def model(self) -> Model:
        if self.kind == "tier":
            return Tier(Setup(**self.rules))
        if self.kind == "claim":
            return TwoMachines(ClaimSetup(**self.rules))
        return TopicDeletion(RemoverSetup(**self.rules))


def merged(shapes: tuple[Shape, ...], rules: Shape) -> Shape:
    """Later shapes win."""
    return {key: value for shape in (*shapes, rules) for key, value in shape.items()}


def tier(name: str, *shapes: Shape, **rules: Any) -> Run:
    return Run(name, "tier", merged(shapes, rules), caught=False)


def deletion(name: str, *shapes: Shape, **rules: Any) -> Run:
    return Run(name, "deletion", merged(shapes, rules), caught=False)


def claim(name: str, *shapes: Shape, **rules: Any) -> Run:
    return Run(name, "claim", merged(shapes, rules), caught=False)


def mutants(*runs: Run) -> tuple[Run, ...]:
    return tuple(run._replace(caught=True) for run in runs)


def all_but(*ways: str) -> frozenset[str]:
    return Setup().ways - frozenset(ways)


BOTH = (True, True)
NEITHER = (False, False)
# Offsets 0 and 1 are FINISHED, one segment each.
TWO: Any = ((0, 0, (1,)), (1, 1, (1,)))
# One record, one segment.
ONE: Shape = {"logs": ((1,), (1,)), "expire": BOTH}
BEHIND: Shape = {
    "logs": ((1, 1, 1), (1,)),
    "grow": (0, 0, 3, 3, 3),
    "elections": 1,
    "unclean": 1,
    "expire": (False, True),
    "ids": 5,
}
TWICE: Shape = {
    "logs": ((1, 1), (1,)),
    "grow": (0, 0, 2, 2, 2),
    "elections": 2,
    "unclean": 2,
    "ids": 4,
}
# Lost, old and damaged files of one replica.
SOLO: Shape = {"solo": True, "expire": (True, False)}
FILES = ("chain", "oldchain", "start", "both")
ONCE: Shape = {**SOLO, "damages": 1, "ids": 3}
# The log start has moved, nothing was ever copied.
EMPTY: Shape = {"logs": ((1,), (1,)), "starts": ((1, 1), (0, 0)), "first_ordered": 1}
DIR: Shape = {
    **SOLO,
    "damages": 1,
    "kinds": ("dir",),
    "logs": ((1,), (1,)),
    "late": (0, 2, 3, 3, 3),
    "ids": 3,
}
CUT: Shape = {**SOLO, "topic_losses": 1, "cut_any": True, "ids": 2}
LOST: Shape = {
    **SOLO,
    "fresh": True,
    "check_red": False,
    "logs": ((1, 1, 1),) * 2,
    "copied": ((0, 0, (1,)), (2, 2, (1,))),
    "starts": ((3, -1), (0, 0)),
    "ids": 2,
}
OLDER: Shape = {
    **ONCE,
    "first_epoch": 2,
    "logs": ((1, 2),) * 2,
    "copied": ((0, 0, (1,)), (1, 1, (2,))),
    "copied_pairs": ((1, 1), (2, 1)),
    "starts": ((2, 0), (0, 0)),
    "kinds": ("oldchain",),
}
# An unclean election at epoch 2: s1 is off the chain, s2 on it.
LEFT: Shape = {
    **SOLO,
    "first_epoch": 2,
    "first_unclean": 2,
    "logs": ((1, 2),) * 2,
    "copied": ((0, 0, (1,), (1,)), (1, 2, (1, 1), (1, 1, 1)), (1, 1, (2,), (1, 2))),
    "copied_pairs": ((1, 1), (1, 1), (2, 1)),
    "starts": ((2, 0), (0, 0)),
    "ids": 4,
}
# The same with other borders.
LEFT_2: Shape = {
    **LEFT,
    "logs": ((1, 2, 2),) * 2,
    "starts": ((3, 0), (0, 0)),
    "copied_pairs": ((1, 1), (1, 1), (1, 1), (2, 1)),
    "copied": (
        (0, 0, (1,), (1,)),
        (1, 1, (1,), (1, 1)),
        (2, 2, (1,), (1, 1, 1)),
        (1, 2, (2, 2), (1, 2, 2)),
    ),
}
# The lineage of epoch 1 has come back at epoch 3.
BACK: Shape = {
    **SOLO,
    "first_epoch": 3,
    "first_unclean": 3,
    "logs": ((1, 1),) * 2,
    "copied": ((0, 0, (1,), (1,)), (1, 1, (1,), (1, 1)), (1, 1, (2,), (1, 2))),
    "copied_pairs": ((1, 1), (1, 1), (2, 1)),
    "starts": ((2, 0), (0, 0)),
    "ids": 4,
}
LINES: Shape = {
    "logs": ((1, 1), (1,)),
    "grow": (0, 0, 3, 4, 5),
    "copied": TWO,
    "raises": 1,
    "raise_to": (2,),
    "unclean": 1,
    "expire": NEITHER,
    "ids": 2,
}
PAIR: Shape = {"damages": 1, "elections": 1, "expire": BOTH}
# Topic deletion judged by what the image lacks, as first worded.
ABSENT: Shape = {"judge": "absent", "ask_high_watermark": True}
OLD_LOG: Shape = {"restores": 1, "others": 1}
