"""ERROR lines are incidents or reasons of health, which have a meaning and a remedy each."""

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from runtime.incidents import Incident

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "broker",
    "kafka_client",
    "kafka_protocol",
    "local_log",
    "metadata_topic",
    "pipeline",
    "pyspark_tidemark",
    "rlm",
    "rlmm",
    "rsm_plugins",
    "runtime",
    "tidemark",
)
LOGGERS = {"log", "logger", "_log", "_logger"}
AT_ERROR = {"error", "exception", "critical", "fatal"}
LEVELS = {"ERROR", "CRITICAL", "FATAL"}


def parsed() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text())


def is_logger(one: ast.expr) -> bool:
    match one:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in LOGGERS
        case ast.Call(func=ast.Attribute(attr="getLogger")):
            return True
    return False


def names_error(one: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in LEVELS for node in ast.walk(one))


def may_be_error(level: ast.expr, function: ast.AST) -> bool:
    """Whether a level is ERROR, or a name that the function may give to ERROR."""
    if isinstance(level, ast.Name):
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=[target], value=value) | ast.For(target=target, iter=value):
                    names = {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}
                    if level.id in names and names_error(value):
                        return True
    return names_error(level)


def error_lines(function: ast.AST) -> Iterator[ast.expr]:
    """The line that each call at ERROR in a function logs."""
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=[_, *_] as args):
                if name in AT_ERROR and is_logger(args[0]) and len(args) > 1:
                    yield args[1]  # of a LimitedLog
                elif is_logger(owner) and (
                    name in AT_ERROR or (name == "log" and may_be_error(args[0], function))
                ):
                    yield args[-1]


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
        'limited.error(self._log, "text", subject)',
        'log.log(logging.ERROR, "text")',
        'log.log(logging.ERROR if bad else logging.INFO, "text")',
        'level = logging.ERROR if bad else logging.INFO\n log.log(level, "text")',
        'for level in (logging.ERROR, logging.INFO):\n  log.log(level, "text")',
        'logging.getLogger("a").critical("text")',
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
