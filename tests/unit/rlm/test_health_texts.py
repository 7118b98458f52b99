"""Whatever health says of the tier names its remedy, and docs/operations.md explains it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import get_type_hints

import pytest

from broker.remote import tier
from rlm.health_reasons import TierReason
from rlm.link.messages import PartitionHealth
from rlmm.health_text import HEALTHY, HealthReason, HealthText, joined
from rlmm.topic_based.removal_policy import RemovalReason
from rlmm.topic_based.topic_port import TopicReason

ROOT = Path(__file__).parents[3]
PACKAGES = ("rlm", "rlmm", "broker", "metadata_topic", "tidemark")
KINDS = [kind for kinds in HealthReason.__subclasses__() for kind in kinds]
MADE_BY = ROOT / "rlmm" / "red.py"


def test_all_kinds_are_walked() -> None:
    assert tier is not None  # the broker's part is imported
    assert {type(kind) for kind in KINDS} == {TierReason, RemovalReason, TopicReason}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_names_what_is_wrong_and_the_remedy(kind: HealthReason) -> None:
    says, meaning, remedy = kind.parts
    assert min(len(says), len(meaning), len(remedy)) > 10
    facts = {name: f"<{name}>" for name in facts_of(kind)}
    text = kind.text(**facts)
    what, _, then = text.partition(". Remedy: ")
    assert what == Formatter().vformat(says, (), facts)
    assert then == Formatter().vformat(remedy, (), facts)


def facts_of(kind: HealthReason) -> set[str]:
    says, _, remedy = kind.parts
    return {name for _, name, _, _ in Formatter().parse(says + remedy) if name}


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            yield path, ast.parse(path.read_text())


def test_each_is_said_somewhere_with_all_its_facts() -> None:
    named, wrong = set(), []
    for path, module in sources():
        for node in ast.walk(module):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                named.add((node.value.id, node.attr))
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        value=ast.Attribute(value=ast.Name(id=owner), attr=name), attr="text"
                    ),
                    keywords=keywords,
                ):
                    kind = next(
                        (k for k in KINDS if (type(k).__name__, k.name) == (owner, name)), None
                    )
                    spread = any(keyword.arg is None for keyword in keywords)
                    given = {keyword.arg for keyword in keywords}
                    if kind is not None and not spread and given != facts_of(kind):
                        wrong.append(f"{path}:{node.lineno}: {name} says {sorted(facts_of(kind))}")
    assert wrong == []
    assert [kind for kind in KINDS if (type(kind).__name__, kind.name) not in named] == []


def test_no_other_text_is_made() -> None:
    """What health carries is a HealthText (mypy sees to it), and only one file makes these."""
    assert get_type_hints(PartitionHealth)["reason"] is HealthText
    made = [
        f"{path}:{node.lineno}"
        for path, module in sources()
        if path != MADE_BY
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"HealthText", "cast"}
        and "HealthText" in ast.dump(node)
    ]
    assert made == []


def test_the_documentation_explains_each() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    missing = [row for kind in KINDS if (row := row_of(kind)) not in page]
    assert missing == [], "rows for the table of docs/operations.md:\n" + "\n".join(missing)


def row_of(kind: HealthReason) -> str:
    says, meaning, remedy = (re.sub(r"\{\w+\}", "...", part) for part in kind.parts)
    return f"| `{says}` | {meaning} | {remedy} |"


def test_several_reasons_are_one_text() -> None:
    assert joined([TierReason.NEWER_OWNER.text(), TierReason.MARKED.text()]).count("Remedy") == 2
    assert joined([]) == HEALTHY
    assert TierReason.METADATA.text(error="{odd}").startswith("metadata: {odd}. Remedy: ")
