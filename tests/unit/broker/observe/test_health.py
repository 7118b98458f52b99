"""What a node says of itself, and what to do about it."""

import json
import re
from pathlib import Path

from broker.observe.health import REMEDIES, Health, remedy

ROOT = Path(__file__).parents[4]
PART = re.compile(r'health\.(?:checks|warnings)\["([a-z-]+)"\]')


def test_reasons_come_with_what_to_do_unless_they_say_it() -> None:
    health = Health(1)
    health.checks["logs"] = lambda: ["log directory d is offline: no"]
    health.warnings["tier"] = lambda: ["x: y. Remedy: wait"]
    report = health.report()
    assert report["reasons"] == [
        "logs: log directory d is offline: no",
        "tier: x: y. Remedy: wait",
    ]
    assert report["remedies"] == {"logs: log directory d is offline: no": REMEDIES["logs"]}
    assert "tidemark directories" in REMEDIES["logs"]


def test_a_page_that_gives_other_reasons_gives_no_remedies_of_health() -> None:
    health = Health(1)
    health.checks["logs"] = lambda: ["log directory d is offline: no"]
    assert json.loads(health.ready_page().body)["remedies"] == {}
    health.stage = "running"
    assert json.loads(health.ready_page().body)["remedies"] != {}
    health.waits_for = lambda: ["no leader of the metadata quorum is known"]
    assert json.loads(health.ready_page().body)["remedies"] == {}


def test_each_part_that_may_be_ill_has_something_to_do() -> None:
    parts = {
        part for path in (ROOT / "broker").rglob("*.py") for part in PART.findall(path.read_text())
    }
    assert len(parts) > 15
    assert parts - REMEDIES.keys() == set()
    assert REMEDIES.keys() - parts == set()


def test_a_part_that_nobody_knows_has_no_remedy() -> None:
    assert remedy("moon: it is full") == ""
