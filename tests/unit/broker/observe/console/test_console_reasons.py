"""Why a node is not green, and what to do about it."""

import re
from pathlib import Path

from broker.observe.console.reasons import REMEDIES, health

ROOT = Path(__file__).parents[5]
PART = re.compile(r'health\.(?:checks|warnings)\["([a-z-]+)"\]')


def test_reasons_come_with_what_to_do_unless_they_say_it() -> None:
    report = {
        "status": "red",
        "stage": "running",
        "parts": {"logs": "red", "tier": "yellow"},
        "reasons": ["logs: log directory d is offline: no", "tier: x: y. Way out: wait"],
        "notes": ["tier: soon"],
    }
    logs, tier = health(report)["reasons"]
    assert (logs["part"], logs["status"]) == ("logs", "red")
    assert logs["text"] == "log directory d is offline: no"
    assert "tidemark directories" in logs["remedy"]
    assert (tier["status"], tier["text"], tier["remedy"]) == ("yellow", "x: y. Way out: wait", "")


def test_only_the_first_reasons_are_shown() -> None:
    report = {
        "status": "red",
        "stage": "running",
        "parts": {},
        "reasons": [f"logs: {n} {'x' * 5_000}" for n in range(120)],
        "notes": [],
    }
    found = health(report)
    assert (len(found["reasons"]), found["more_reasons"]) == (50, 70)
    assert all(len(one["text"]) <= 1_000 for one in found["reasons"])


def test_each_part_that_may_be_ill_has_something_to_do() -> None:
    parts = {
        part for path in (ROOT / "broker").rglob("*.py") for part in PART.findall(path.read_text())
    }
    assert len(parts) > 15
    assert parts - REMEDIES.keys() == set()
    assert REMEDIES.keys() - parts == set()
