"""Kinds of simulated quorums: what a seed decides in them, and how one is made of it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tests.support.raft.plan import plan_of
from tests.support.raft.world import CoreFactory, World, real_core


@dataclass(frozen=True)
class Kind:
    """One of them.

    Attributes:
        name: on the command line.
        plan_of: a seed's plan, a dataclass with `without`.
        make_world: of a plan, and how many lines of its trace to keep.
        simpler: changes of a plan that leave out what disturbs, the best first.
        running: around each run.
    """

    name: str
    plan_of: Callable[[int], Any]
    make_world: Callable[[Any, int], Any]
    simpler: tuple[dict[str, Any], ...]
    running: Callable[[], AbstractContextManager[None]] = nullcontext


QUIETER: tuple[dict[str, Any], ...] = (
    {"observers": (), "outsiders": ()},
    {"loss": 0.0, "duplication": 0.0},
    {"snapshot_every_ms": 0},
    {"clock_skew": 0.0},
    {"delay_us": (500, 0), "disk_us": (500, 0)},
)


def core_kind(make_core: CoreFactory = real_core) -> Kind:
    """The core alone, on a model of a disk."""
    return Kind(
        "core",
        plan_of,
        lambda plan, lines: World(plan, make_core=make_core, trace_lines=lines),
        QUIETER,
    )


CORE = core_kind()
