"""The JSON value: its shape, its bounds, and names that were chosen to do harm."""

import json

import jsonschema
import msgspec
import pytest

from broker.observe.console import state
from broker.observe.console.facts import (
    BrokerFacts,
    CommittedFacts,
    GroupFacts,
    QuorumFacts,
    ReplicaOfQuorum,
    TierFacts,
)
from broker.observe.console.history import History
from broker.observe.console.selection import Activity
from broker.observe.console.state import describe, health, shown
from tests.support.console.source import DESCRIBED_SCHEMA, ListedSource, described, log_of

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    '"};alert(1)//',
    "\ud800 half of a character",
    "\x00\x1b[2J\r\nSet-Cookie: a=b",
    "\u202egnp.exe",
    "x" * 40_000,
    "",
)


def full_source() -> ListedSource:
    """More of everything than a page shows, under names of any kind."""
    source = ListedSource(
        all_partitions=[log_of(f"t{n % 70}", n, problem="p" * 5_000) for n in range(700)],
        all_groups=[GroupFacts(f"g{n}", "Stable", n % 3, 5) for n in range(300)],
        offsets=[CommittedFacts(f"g{n}", "t0", 0, 3) for n in range(300)],
        all_brokers=[BrokerFacts(n, ["h:1"] * 20, "r", False, False, True) for n in range(300)],
        of_quorum=QuorumFacts(3, 1, True, 9, [ReplicaOfQuorum(n, 9, 0) for n in range(300)], []),
        of_tier=TierFacts("up", 7, 0, 700, 700),
    )
    for name in HOSTILE:
        source.all_partitions.append(log_of(name, problem=name or "ill"))
        source.all_groups.append(GroupFacts(name, name, 3, 1))
        source.offsets.append(CommittedFacts(name, name, 0, 1))
        source.all_brokers.insert(0, BrokerFacts(1, [name], name, True, True, False))
    return source


def test_the_value_has_its_shape_and_bounds_whatever_there_is() -> None:
    value = described(full_source())
    encoded = msgspec.json.encode(value)
    jsonschema.validate(json.loads(encoded), DESCRIBED_SCHEMA)
    assert (len(value["partitions"]), value["more_partitions"]) == (500, 207)
    assert (len(value["groups"]), value["more_groups"]) == (100, 207)
    assert (len(value["brokers"]), value["more_brokers"]) == (100, True)
    assert len(encoded) < 1_500_000


def test_a_node_that_starts_has_an_empty_value() -> None:
    jsonschema.validate(described(ListedSource()), DESCRIBED_SCHEMA)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_text_that_can_be_encoded_and_is_short(name: str) -> None:
    source = ListedSource(
        all_partitions=[log_of(name)],
        all_groups=[GroupFacts(name, "Empty", 0, 1)],
        offsets=[CommittedFacts(name, name, 0, 40)],
    )
    value = json.loads(msgspec.json.encode(described(source)))
    [partition], [group] = value["partitions"], value["groups"]
    assert partition["topic"] == group["group"] == partition["groups"][0]["group"] == shown(name)
    assert len(shown(name)) <= 250
    if len(name) <= 250 and "\ud800" not in name:
        assert shown(name) == name


def test_a_partition_says_where_it_begins_and_ends_in_both_tiers() -> None:
    facts = {"log_start": 10, "local_start": 80, "copied_end": 90, "committed_end": 99}
    source = ListedSource([log_of("t", 3, is_tiered=True, size_bytes=7, **facts)])
    [found] = described(source)["partitions"]
    assert {name: found[name] for name in facts} == facts
    assert (found["topic"], found["partition"], found["tiered"]) == ("t", 3, True)
    assert (found["log_end"], found["size_bytes"], found["lag"]) == (100, 7, -1)


def test_lag_is_that_of_the_group_furthest_behind() -> None:
    source = ListedSource(
        all_partitions=[log_of("t", 0, end=100), log_of("t", 1, end=50)],
        all_groups=[GroupFacts(name, "Stable", 1, 2) for name in ("near", "far")],
        offsets=[
            CommittedFacts("near", "t", 0, 99),
            CommittedFacts("far", "t", 0, 30),
            CommittedFacts("far", "t", 1, 20),
            CommittedFacts("far", "elsewhere", 0, 20),
        ],
    )
    value = described(source)
    assert [one["lag"] for one in value["partitions"]] == [70, 30]
    assert value["partitions"][0]["groups"] == [
        {"group": "far", "offset": 30, "lag": 70},
        {"group": "near", "offset": 99, "lag": 1},
    ]
    of_groups = [(one["group"], one["lag"], one["lag_partitions"]) for one in value["groups"]]
    assert of_groups == [("far", 100, 2), ("near", 1, 1)]


def test_an_offset_above_the_end_is_no_negative_lag() -> None:
    source = ListedSource([log_of("t", end=5)], offsets=[CommittedFacts("g", "t", 0, 9)])
    assert described(source)["partitions"][0]["lag"] == 0


def test_of_many_groups_on_a_partition_those_furthest_behind_are_drawn() -> None:
    offsets = [CommittedFacts(f"g{n}", "t", 0, n) for n in range(20)]
    [found] = described(ListedSource([log_of("t")], offsets=offsets))["partitions"]
    assert [one["offset"] for one in found["groups"]] == list(range(8))
    assert found["more_groups"] == 12


def test_no_more_offsets_are_looked_at_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "OFFSETS_SEEN_MAX", 50)
    offsets = [CommittedFacts("g", "t", n, 1) for n in range(60)]
    source = ListedSource(offsets=offsets)
    assert described(source)["offsets_are_whole"] is False
    assert source.looked_at == 51
    assert described(ListedSource(offsets=offsets[:50]))["offsets_are_whole"] is True


def test_sums_are_of_all_partitions() -> None:
    partitions = [log_of("t", n, size_bytes=2, is_tiered=n % 2 == 0) for n in range(600)]
    partitions.append(log_of("u", is_led=False, problem="ill"))
    sums = described(ListedSource(partitions))["sums"]
    assert sums == {"partitions": 601, "led": 600, "tiered": 300, "ill": 1, "local_bytes": 1_200}


def test_many_partitions_are_described_in_steps() -> None:
    source = ListedSource([log_of("t", n) for n in range(3_000)])
    steps = describe(source, Activity(), History(), 0)
    assert sum(1 for _ in steps) >= 15


def test_reasons_are_shown_by_part_with_what_to_do() -> None:
    report = {
        "status": "red",
        "stage": "running",
        "parts": {"logs": "red", "tier": "yellow"},
        "reasons": ["logs: log directory d is offline: no", "tier: x: y. Remedy: wait"],
        "remedies": {"logs: log directory d is offline: no": "repair it"},
        "notes": ["tier: soon"],
    }
    logs, tier = health(report)["reasons"]
    assert (logs["part"], logs["status"]) == ("logs", "red")
    assert (logs["text"], logs["remedy"]) == ("log directory d is offline: no", "repair it")
    assert (tier["status"], tier["text"], tier["remedy"]) == ("yellow", "x: y. Remedy: wait", "")


def test_only_the_first_reasons_are_shown() -> None:
    report = {
        "status": "red",
        "stage": "running",
        "parts": {},
        "reasons": [f"logs: {n} {'x' * 5_000}" for n in range(120)],
        "remedies": {},
        "notes": [],
    }
    found = health(report)
    assert (len(found["reasons"]), found["more_reasons"]) == (50, 70)
    assert all(len(one["text"]) <= 1_000 for one in found["reasons"])
