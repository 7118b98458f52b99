"""The tables of docs/bounds.md name keys, constants, metrics and tests that exist."""

import re
from pathlib import Path
from typing import NamedTuple

from broker.config.keys import BROKER_KEYS, TOPIC_KEYS
from rsm_plugins.loader import SHIPPED, load_storage_manager
from rsm_plugins.settings import PREFIX
from tests.support.named_tests import names_by_file

ROOT = Path(__file__).parents[2]
ROWS_MIN = 60
CONSTANTS = re.compile(r"((?:`[\w.]+`(?:, | and )?)+) in `([\w/]+\.py)`")


class Row(NamedTuple):
    what: str
    bound: str
    set_by: str
    watch: str
    at_the_bound: str
    test: str


def rows() -> list[Row]:
    page = (ROOT / "docs" / "bounds.md").read_text()
    lines = [line.strip().strip("|") for line in page.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return [Row(*each) for each in cells if len(each) == len(Row._fields) and each[0] != "what"]


def ticked(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_every_row_is_whole() -> None:
    found = rows()
    assert len(found) >= ROWS_MIN
    assert [row for row in found if not all(row)] == []
    assert [row.what for row in found if not ticked(row.set_by)] == []
    assert [row.what for row in found if not ticked(row.watch) and row.watch != "-"] == []


def test_every_test_that_leans_on_a_bound_exists() -> None:
    known = names_by_file()
    wrong = []
    for row in rows():
        named = ticked(row.test)
        for each in named:
            file, _, test = each.partition("::")
            if not test or test not in known.get(file, set()):
                wrong.append(f"{row.what}: {each}")
        if not named:
            wrong.append(f"{row.what}: no test")
    assert wrong == []


def test_every_key_and_constant_is_real() -> None:
    keys = {key.name for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()) if key.effect}
    plugins = [type(load_storage_manager(name)) for name in SHIPPED]
    keys |= {PREFIX + one.name for plugin in plugins for one in plugin.SETTINGS}  # type: ignore[attr-defined]
    wrong = []
    for row in rows():
        in_code = set()
        for names, file in CONSTANTS.findall(row.set_by):
            path = ROOT / file
            text = path.read_text() if path.is_file() else ""
            for name in ticked(names):
                in_code |= {name, file}
                if not re.search(rf'(?m)^\s*(?:(?:def|class) )?"?{re.escape(name)}\b', text) and (
                    not re.search(rf"(?m)^[A-Z_]+, {name} = ", text)
                ):
                    wrong.append(f"{row.what}: no {name} in {file}")
        for name in set(ticked(row.set_by)) - in_code:
            if name not in keys:
                wrong.append(f"{row.what}: {name} is no key with an effect")
    assert wrong == []


def test_every_metric_is_real() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    registered = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    named = {(row.what, name) for row in rows() for name in ticked(row.watch)}
    assert len(named) > 20
    assert [one for one in sorted(named) if one[1] not in registered] == []
