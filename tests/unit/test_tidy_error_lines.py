"""ERROR lines are incidents or reasons of health, which have a meaning and a remedy each."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

from runtime.incidents import Incident

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "local_log", "metadata_topic", "rlm", "rlmm", "runtime")
LEFT: dict[str, int] = {
    "broker": 18,
    "local_log": 17,
    "metadata_topic": 6,
    "rlm": 7,
    "rlmm": 3,
    "runtime": 1,
}
"""How many calls of each package are from before the rule: a number may only fall."""


def calls() -> Iterator[tuple[str, ast.Call]]:
    """(package, call) of each `log.error` and `log.exception`."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Call(
                        func=ast.Attribute(
                            value=ast.Name(id="log") | ast.Attribute(attr="_log"),
                            attr="error" | "exception",
                        )
                    ):
                        yield package, node


def is_described(node: ast.expr) -> bool:
    """Whether an argument is a line of an Incident, or a text of health."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id=owner)), attr=made)):
            return (owner, made) in {("Incident", "line"), ("HealthReason", "text")}
        case ast.Attribute(attr="unhealthy") | ast.Name(id="unhealthy"):
            return True
    return False


def test_error_lines_are_incidents_or_reasons_of_health() -> None:
    found = Counter(package for package, call in calls() if not is_described(call.args[-1]))
    assert dict(found) == LEFT, "log an Incident; where fewer are left, lower the number"


def test_each_incident_is_logged_with_all_its_facts() -> None:
    logged, wrong = set(), []
    for _, call in calls():
        match call.args[0]:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name)), keywords=keywords):
                incident = Incident.__members__.get(name)
                if incident is None:
                    continue
                logged.add(incident)
                forms = incident.text_form + incident.meaning + incident.remedy_form
                facts = {fact for _, fact, _, _ in Formatter().parse(forms) if fact}
                if {keyword.arg for keyword in keywords} != facts:
                    wrong.append(f"{name} at line {call.lineno} needs {sorted(facts)}")
    assert wrong == []
    assert set(Incident) - logged == set()


def test_a_line_has_meaning_and_remedy() -> None:
    line = Incident.FSYNC_FAILED.line(partition="t-0", error="{odd}")
    assert line.startswith("fsync failed: partition=t-0 error={odd}. Records since the last fsync")
    assert ". Remedy: " in line
    assert "\n" not in line
