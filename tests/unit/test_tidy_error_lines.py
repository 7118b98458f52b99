"""ERROR lines are incidents or reasons of health, which have a meaning and a remedy each."""

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from runtime.incidents import Incident

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "local_log", "metadata_topic", "rlm", "rlmm", "runtime")


def parsed() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text())


def error_lines(function: ast.AST) -> Iterator[ast.expr]:
    """The line that each call at ERROR in a function logs."""
    for node in ast.walk(function):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="error"), args=[ast.Name(id="log" | "logger"), line, *_]
            ):
                yield line  # of a LimitedLog
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Name(id="log") | ast.Attribute(attr="_log"),
                    attr="error" | "exception",
                )
            ):
                yield node.args[-1]
            case ast.Call(
                func=ast.Attribute(attr="log"),
                args=[ast.Attribute(attr="ERROR" | "CRITICAL"), *_, line],
            ):
                yield line


def is_described(line: ast.expr, function: ast.AST) -> bool:
    """Whether a line is of an Incident or of health, or a name that the function gives to one."""
    match line:
        case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id=owner)), attr=made)):
            return (owner, made) in {("Incident", "line"), ("HealthReason", "text")}
        case ast.Call(func=ast.Name(id="with_left_out"), args=[inner, _]):
            return is_described(inner, function)
        case ast.Attribute(attr="unhealthy") | ast.Name(id="unhealthy"):
            return True
        case ast.Name(id=name):
            given = [
                node.value
                for node in ast.walk(function)
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
            ]
            return bool(given) and all(is_described(one, ast.Module([], [])) for one in given)
    return False


def faults(path: Path, tree: ast.Module) -> Iterator[str]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for line in error_lines(function):
                if not is_described(line, function):
                    yield f"{path}:{line.lineno}: {ast.unparse(line)}"


def test_error_lines_are_incidents_or_reasons_of_health() -> None:
    found = [fault for path, tree in parsed() for fault in faults(path, tree)]
    assert not found, "log an Incident, or a lower level:\n" + "\n".join(sorted(set(found)))


@pytest.mark.parametrize(
    "call",
    [
        'log.error("text")',
        'self._log.exception("%s", text)',
        'limited.error(log, f"{text}")',
        'log.log(logging.ERROR, "text")',
        "line = text\n log.error(line)",
    ],
)
def test_a_free_text_at_error_is_found(call: str) -> None:
    tree = ast.parse(f"def f():\n {call}")
    assert len(list(faults(Path("x.py"), tree))) == 1


def test_each_incident_is_logged_with_all_its_facts() -> None:
    logged, wrong = set(), []
    for path, tree in parsed():
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        value=ast.Attribute(value=ast.Name(id="Incident"), attr=name), attr="line"
                    ),
                    keywords=keywords,
                ):
                    incident = Incident[name]
                    logged.add(incident)
                    forms = incident.text_form + incident.meaning + incident.remedy_form
                    facts = {fact for _, fact, _, _ in Formatter().parse(forms) if fact}
                    if {keyword.arg for keyword in keywords} != facts:
                        wrong.append(f"{path}:{node.lineno}: {name} needs {sorted(facts)}")
    assert wrong == []
    assert set(Incident) - logged == set()


def test_a_line_has_meaning_and_remedy() -> None:
    line = Incident.FSYNC_FAILED.line(partition="t-0", error="{odd}")
    assert line.startswith("fsync failed: partition=t-0 error={odd}. Records since the last fsync")
    assert ". Remedy: " in line
    assert "\n" not in line
