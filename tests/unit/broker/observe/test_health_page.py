"""docs/operations.md begins with a row for each reason that health can give, and what to do.

The reasons of the tier have a table of their own, see `tests/unit/rlm/test_health_texts.py`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.observe.health import REMEDIES

ROOT = Path(__file__).parents[4]
LONG = 18
"""Of a text for people; what is shorter is a part of one."""
SAID_BY = {
    "compaction": [("local_log/cleaner/cleaner.py", "LogCleaner.problems")],
    "controller": [
        ("metadata_topic/controller/features.py", "controller_problem"),
        ("metadata_topic/raft/events.py", "LAST_EPOCH"),
    ],
    "disk": [("broker/observe/disk_forecast.py", "DiskForecast.warnings")],
    "features": [("broker/observe/replication_metrics.py", "_missing_feature")],
    "followers": [
        ("broker/replication/manager.py", "ReplicaFetchers.problems"),
        ("broker/replication/tier_bootstrap.py", "TierBootstraps.problems"),
    ],
    "groups": [("broker/coordinator/service.py", "GroupCoordinator.problems")],
    "groups-data": [("broker/coordinator/service.py", "GroupCoordinator.damages")],
    "kafka-controllers": [],
    "logs": [("broker/observe/health.py", "offline_directories")],
    "membership": [("broker/node/membership.py", "MembershipWatch.problems")],
    "metadata": [],
    "partitions": [("broker/observe/health.py", "offline_reasons")],
    "put-aside": [("broker/observe/health.py", "put_aside")],
    "quorum": [("broker/observe/quorum_health.py", "QuorumHealth.problems")],
    "registration": [("broker/process/broker_tier.py", "BrokerTier.show_registration")],
    "remote-metadata": [
        ("broker/topics/internal.py", "remote_metadata_problems"),
        ("broker/topics/internal.py", "TooFewBrokersError"),
    ],
    "replicas": [],
    "snapshots": [],
    "tier": [],
}
"""By part, where its texts are made, beside the places where it is registered."""
BY_A_KIND = {"disk", "kafka-controllers", "tier"}
"""Their texts are of a `HealthReason`, and stand in the table of the tier."""
OF_THE_DISK = {"snapshots"}
"""Whatever the disk has said."""


def template(node: ast.expr) -> str:
    """A text with `...` for what is filled in; "" where it is none."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"\{\w+\}", "...", text)
        case ast.JoinedStr(values=values):
            parts = (template(one) if isinstance(one, ast.Constant) else "..." for one in values)
            return "".join(parts)
    return ""


def texts(node: ast.AST) -> Iterator[str]:
    """The texts that are made in a piece of code, but for those of log lines and docstrings."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log"))):
            return
        case ast.Constant() | ast.JoinedStr():
            if len(text := template(node)) >= LONG and text[0] != ",":
                yield text
            return
    for child in ast.iter_child_nodes(node):
        yield from texts(child)


def found(body: list[ast.stmt], name: str) -> ast.AST:
    """What a dotted name stands for in a module or class."""
    first, _, rest = name.partition(".")
    for node in body:
        match node:
            case ast.ClassDef(name=each, body=inner) if each == first and rest:
                return found(inner, rest)
            case ast.FunctionDef(name=each) | ast.AsyncFunctionDef(name=each) if each == first:
                return node
            case ast.AnnAssign(target=ast.Name(id=each)) if each == first:
                return node
    raise AssertionError(f"there is no {name}")


def raised(module: ast.Module, name: str) -> list[ast.AST]:
    """Each place where an error is made, whose text health shows."""
    calls = (node for node in ast.walk(module) if isinstance(node, ast.Call))
    return [one for one in calls if isinstance(one.func, ast.Name) and one.func.id == name]


def registered() -> Iterator[tuple[str, str, ast.expr]]:
    """(part, `checks` or `warnings`, what says it) of each registration in the code."""
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
                    value=value,
                ):
                    yield part, kind, value


def reasons() -> Iterator[tuple[str, str]]:
    """(part, text) of each reason."""
    for part, _, value in registered():
        for text in texts(value):
            yield part, text
    for part, places in SAID_BY.items():
        for file, name in places:
            module = ast.parse((ROOT / file).read_text())
            nodes = raised(module, name) if name.endswith("Error") else [found(module.body, name)]
            made = [text for node in nodes for text in texts(node)]
            assert made, f"{file}: {name} makes no text any more"
            for text in made:
                yield part, text


def rows() -> list[tuple[str, str, str, str]]:
    """(part, beginning of its text, meaning, what to do) of each row of the page."""
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.partition("\n## What health says\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| `([\w-]+): (.*?)` \| (.*) \| (.*) \|$", section, re.MULTILINE)
    return [(part, text.removesuffix(" ..."), *rest) for part, text, *rest in cells]


def test_the_page_begins_with_it() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    assert page.index("\n## ") == page.index("\n## What health says\n")
    assert page[: page.index("\n## ")].count("\n") <= 6


def test_every_part_that_can_be_ill_is_there() -> None:
    parts = {part for part, _, _ in registered()}
    assert parts == SAID_BY.keys() == REMEDIES.keys() == {part for part, *_ in rows()}


@pytest.mark.parametrize(("part", "text"), sorted(set(reasons())))
def test_each_reason_has_a_row(part: str, text: str) -> None:
    beginnings = [beginning for of, beginning, *_ in rows() if of == part]
    assert [one for one in beginnings if text.startswith(one)], f"{part}: {text}"


def test_each_row_is_a_reason() -> None:
    made = list(reasons())
    stale = [
        f"{part}: {beginning}"
        for part, beginning, *_ in rows()
        if part not in BY_A_KIND | OF_THE_DISK
        and not any(part == of and text.startswith(beginning) for of, text in made)
    ]
    assert stale == []


def test_each_row_says_what_health_says_is_to_be_done() -> None:
    lacking = [(part, REMEDIES[part]) for part, _, _, do in rows() if REMEDIES[part] not in do]
    assert lacking == []


def test_what_can_only_be_yellow_is_called_so() -> None:
    unhealthy = {part for part, kind, _ in registered() if kind == "checks"} | BY_A_KIND
    wrong = [
        (part, text)
        for part, text, meaning, _ in rows()
        if part not in unhealthy and not meaning.startswith("yellow: ")
    ]
    assert wrong == []
