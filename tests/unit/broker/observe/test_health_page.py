"""docs/health-reasons.md has each reason that health can give, and its remedy."""

import ast
from collections.abc import Iterator
from pathlib import Path

from broker.observe.health_docs import render
from runtime.health_reasons import RED, YELLOW, HealthReason

ROOT = Path(__file__).parents[4]
BY_A_TIER = {"tier"}
"""Which of its reasons are yellow, the tier decides."""


def registered() -> Iterator[tuple[str, str]]:
    """(part, `checks` or `warnings`) of each registration in the code."""
    for path in (ROOT / "broker").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Assign(
                    targets=[
                        ast.Subscript(
                            value=ast.Attribute(attr="checks" | "warnings" as kind),
                            slice=ast.Constant(value=str(part)),
                        )
                    ],
                ):
                    yield part, kind


def test_the_page_is_what_the_reasons_say() -> None:
    page = (ROOT / "docs" / "health-reasons.md").read_text()
    assert page == render(), "run `make docs`"


def test_operations_begin_with_it() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    assert "(health-reasons.md)" in page[: page.index("\n## ")]
    assert page[: page.index("\n## ")].count("\n") <= 6


def test_every_part_that_can_be_ill_is_there() -> None:
    parts = {part for part, _ in registered()}
    assert len(parts) > 15
    assert parts == {reason.part for reason in HealthReason}


def test_what_can_only_be_yellow_is_called_so() -> None:
    kinds = {RED: "checks", YELLOW: "warnings"}
    stands = set(registered())
    wrong = [
        reason
        for reason in HealthReason
        if reason.part not in BY_A_TIER and (reason.part, kinds[reason.status]) not in stands
    ]
    assert wrong == []
