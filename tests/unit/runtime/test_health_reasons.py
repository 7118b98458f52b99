"""Each reason of health names its remedy, and gets all its facts where it is made."""

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import get_type_hints

import pytest

from local_log.small_files import PlainFiles
from rlm.link.messages import PartitionHealth
from runtime.disk import Disk
from runtime.health_reasons import HEALTHY, HealthReason, HealthText, joined
from runtime.raised import named

ROOT = Path(__file__).parents[3]
PACKAGES = ("local_log", "rlm", "rlmm", "broker", "metadata_topic", "runtime", "tidemark")
MADE_BY = ROOT / "runtime" / "health_reasons.py"


@pytest.mark.parametrize("reason", HealthReason, ids=str)
def test_each_names_what_is_wrong_and_the_remedy(reason: HealthReason) -> None:
    says, meaning, remedy = reason.text_form, reason.meaning, reason.remedy_form
    assert min(len(says), len(meaning), len(remedy)) > 10
    facts = {name: f"<{name}>" for name in facts_of(reason)}
    text = reason.text(**facts)
    what, _, then = text.partition(". Remedy: ")
    assert what == Formatter().vformat(says, (), facts)
    assert then == Formatter().vformat(remedy, (), facts)


def facts_of(reason: HealthReason) -> set[str]:
    forms = reason.text_form + reason.remedy_form
    return {name for _, name, _, _ in Formatter().parse(forms) if name}


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
                        value=ast.Attribute(value=ast.Name(id="HealthReason"), attr=name),
                        attr="text" | "line",
                    ),
                    keywords=keywords,
                ):
                    needed = facts_of(HealthReason[name])
                    spread = any(keyword.arg is None for keyword in keywords)
                    given = {keyword.arg for keyword in keywords}
                    if not spread and given != needed:
                        wrong.append(f"{path}:{node.lineno}: {name} says {sorted(needed)}")
    assert wrong == []
    assert [one for one in HealthReason if ("HealthReason", one.name) not in named] == []


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
        and node.func.id in {"HealthText", "HealthLine", "cast"}
        and ("HealthText" in ast.dump(node) or "HealthLine" in ast.dump(node))
    ]
    assert made == []


def test_several_reasons_are_one_text() -> None:
    assert (
        joined([HealthReason.NEWER_OWNER.text(), HealthReason.MARKED.text()]).count("Remedy") == 2
    )
    assert joined([]) == HEALTHY
    assert HealthReason.METADATA.text(error="{odd}").startswith("metadata: {odd}. Remedy: ")


def test_a_line_has_its_remedy_beside_it_unless_a_fact_has_one() -> None:
    line = HealthReason.OFFLINE.line(partition="t-0", why="gone")
    assert line == "t-0 is offline: gone"
    assert line.remedy == HealthReason.OFFLINE.remedy_form
    assert HealthReason.OFFLINE.line(partition="t-0", why="gone. Remedy: wait").remedy == ""


def test_an_error_of_the_system_met_in_our_code_is_its_text_alone(tmp_path: Path) -> None:
    """A place in our own code is none in a plugin, and helps no operator."""
    plain = PlainFiles(Disk(), tmp_path)
    with pytest.raises(FileNotFoundError) as raised:
        plain.read("none")
    ours = raised.value.with_traceback(raised.tb.tb_next)  # without the test's own frame
    assert named(ours) == f"[Errno 2] No such file or directory: '{tmp_path / 'none'}'"
