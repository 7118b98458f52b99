"""Files of a seed: what they may say, and where an error is."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.page_reader import BLOCK
from tests.support.brokers.process import ROOT
from tidemark.seed.plan import SeedTopic, read_plan
from tidemark.seed.records import Record, SeedError, read_records

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
PAGE = ROOT / "docs" / "operations.md"


def lines(*values: Any) -> str:
    return "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in values)


def read(path: Path, text: str, partitions: int = 3) -> list[Record]:
    path.write_bytes(text.encode())
    return list(read_records(path, partitions, NOW_MS))


def test_every_field_of_a_json_line_is_read(tmp_path: Path) -> None:
    found = read(
        tmp_path / "a.jsonl",
        lines(
            {
                "key": "k",
                "value": {"id": 1, "ä": None},
                "headers": {"one": "1", "none": None, "list": [1]},
                "timestamp": 1_700_000_000_000,
                "partition": 2,
            },
            "",
            {"value": "text", "timestamp": "2026-01-31T12:00:00+01:00"},
            {"key": 7, "value": None, "headers": [["same", "1"], ["same", "2"]]},
            {},
        ),
    )
    assert found == [
        Record(
            1,
            b"k",
            '{"id":1,"ä":null}'.encode(),
            (("one", b"1"), ("none", None), ("list", b"[1]")),
            1_700_000_000_000,
            2,
        ),
        Record(3, value=b"text", timestamp_ms=1_769_857_200_000),
        Record(4, b"7", None, (("same", b"1"), ("same", b"2"))),
        Record(5),
    ]


def test_times_may_be_counted_from_now(tmp_path: Path) -> None:
    texts = ("-2h", "-90s", "-5ms", "-1d", "-2w", "-3m", "-0s")
    found = read(tmp_path / "a.jsonl", lines(*({"timestamp": text} for text in texts)))
    assert [NOW_MS - (record.timestamp_ms or 0) for record in found] == [
        2 * HOUR_MS, 90_000, 5, 24 * HOUR_MS, 14 * 24 * HOUR_MS, 180_000, 0,
    ]  # fmt: skip
    assert read(tmp_path / "a.csv", "timestamp\n-2h\n")[0].timestamp_ms == NOW_MS - 2 * HOUR_MS


def test_every_column_of_csv_is_read(tmp_path: Path) -> None:
    found = read(
        tmp_path / "a.csv",
        "\ufeffvalue,key,partition,timestamp,headers\r\n"
        '"two\nlines, and ""quotes""",k,1,1700000000000,"{""a"": ""b""}"\r\n'
        ",,,,\r\n"
        "ü,,,2026-01-31T11:00:00Z,\r\n",
    )
    assert found == [
        Record(3, b"k", b'two\nlines, and "quotes"', (("a", b"b"),), 1_700_000_000_000, 1),
        Record(4),
        Record(5, value="ü".encode(), timestamp_ms=1_769_857_200_000),
    ]


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.jsonl", lines({}, "{"), ":2: not JSON"),
        ("a.jsonl", lines("[1]"), ":1: each line must be a JSON object"),
        ("a.jsonl", lines({"vlaue": 1}), ":1: vlaue: no such field; there are key, value"),
        ("a.jsonl", lines({}, {"partition": 3}), ":2: partition=3: allowed is 0 to 2"),
        ("a.jsonl", lines({"partition": True}), ":1: partition=True"),
        ("a.jsonl", lines({"partition": "1"}), ":1: partition='1'"),
        ("a.jsonl", lines({"timestamp": 0}), ":1: timestamp=0"),
        ("a.jsonl", lines({"timestamp": "yesterday"}), ":1: timestamp='yesterday'"),
        ("a.jsonl", lines({"timestamp": "2026-01-31T12:00:00"}), "with time and zone"),
        ("a.jsonl", lines({"timestamp": "2h"}), "or a time ago such as -2h"),
        ("a.jsonl", lines({"timestamp": "-2y"}), ":1: timestamp='-2y'"),
        ("a.jsonl", lines({"timestamp": "-99999w"}), ":1: timestamp='-99999w'"),
        ("a.jsonl", lines({"headers": "x"}), ":1: headers: allowed is"),
        ("a.jsonl", lines({"headers": [["a"]]}), ":1: headers: allowed is"),
        ("a.jsonl", lines({"headers": [[1, "a"]]}), ":1: headers: allowed is"),
        ("a.csv", "", ":1: the first line must name columns"),
        ("a.csv", "key,vlaue\n", ":1: vlaue: no such field"),
        ("a.csv", "key,key\n", ":1: key: is there twice"),
        ("a.csv", "key,value\na,b\nc\n", ":3: 1 cells, and the first line names 2 columns"),
        ("a.csv", "key,partition\na,x\n", ":2: partition='x'"),
        ("a.csv", "key,partition\na,-1\n", ":2: partition=-1"),
        ("a.csv", "headers\n{\n", ":2: headers: not JSON"),
        ("a.csv", 'key\n"a\n', "not CSV"),
        ("a.txt", "", "the ending says what it is"),
    ],
)
def test_an_error_names_file_line_and_field(
    tmp_path: Path, name: str, text: str, error: str
) -> None:
    with pytest.raises(SeedError) as raised:
        read(tmp_path / name, text)
    assert str(raised.value).startswith(str(tmp_path / name))
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"value": "\xff"}')
    with pytest.raises(SeedError, match="not UTF-8"):
        list(read_records(tmp_path / "a.jsonl", 1, NOW_MS))
    with pytest.raises(SeedError, match="No such file"):
        list(read_records(tmp_path / "none.jsonl", 1, NOW_MS))


SEED = """
topics:
  - name: orders
    partitions: 3
    configs:
      retention.ms: 86400000
      cleanup.policy: delete
      remote.storage.enable: true
    records: [data/orders.jsonl, more.csv]
  - {name: 007}
"""


def test_a_seed_is_read_with_everything_in_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "orders.jsonl").write_text(lines({}, {"partition": 2}))
    (tmp_path / "more.csv").write_text("value\na\n")
    (tmp_path / "topics.yaml").write_text(SEED)
    plan = read_plan(tmp_path / "topics.yaml", NOW_MS)
    assert plan.topics == (
        SeedTopic(
            3,
            "orders",
            3,
            {
                "retention.ms": "86400000",
                "cleanup.policy": "delete",
                "remote.storage.enable": "true",
            },
            (tmp_path / "data" / "orders.jsonl", tmp_path / "more.csv"),
            3,
            NOW_MS,
        ),
        SeedTopic(10, "007", configs={"retention.ms": "-1"}, now_ms=NOW_MS),
    )
    assert [record.line for _, record in plan.topics[0].records()] == [1, 2, 2]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is empty; it must have a list of topics"),
        ("- a\n", ":1: the seed: must be made of fields"),
        ("topic: []\n", ":1: the seed.topic: no such field; there are topics"),
        ("topics: orders\n", ":1: topics: must be a list"),
        ("{}\n", ":1: topics: is missing"),
        ("topics:\n  - orders\n", ":2: topics[0]: must be made of fields"),
        ("topics:\n  - partitions: 1\n", ":2: topics[0].name: is missing"),
        ("topics:\n  - name: a\n    partition: 1\n", ":3: topics[0].partition: no such field"),
        ("topics:\n  - name: a\n    partitions: 0\n", ":3: topics[0].partitions=0: allowed is"),
        ("topics:\n  - name: a\n    partitions: many\n", ":3: topics[0].partitions=many"),
        ("topics:\n  - name: a\n    name: b\n", ":3: topics[0].name: is there twice"),
        ("topics:\n  - name: a\n  - name: a\n", ":3: topics[1].name: a is in line 2 already"),
        ("topics:\n  - name: a\n    configs: 5\n", ":3: topics[0].configs: must be made of"),
        ("topics:\n  - name: a\n    configs:\n      x: [1]\n", ":4: topics[0].configs.x: must be"),
        ("topics:\n  - name: a\n    records: no.csv\n", ":3: topics[0].records: there is no file"),
        ("topics:\n  - name: a\n    records: bad.csv\n", "bad.csv:2: partition=5"),
        ("topics:\n  - name: [\n", ":3: not YAML"),
        ("topics:\n  - name: \x07\n", "not YAML"),
        ("a: &a [*a]\n", ":1: the seed.a: no such field"),
    ],
)
def test_an_error_of_a_seed_names_line_and_field(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "bad.csv").write_text("partition\n5\n")
    path = tmp_path / "topics.yaml"
    path.write_text(text)
    with pytest.raises(SeedError) as raised:
        read_plan(path)
    assert error in str(raised.value)
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


def seeded(tmp_path: Path, configs: str, *times: Any) -> SeedTopic:
    """A topic with these lines of configs, and a record of each of these times."""
    (tmp_path / "a.jsonl").write_text(lines(*({"timestamp": one} for one in times), {}))
    text = "topics:\n  - name: gauges\n    records: a.jsonl\n"
    text += f"    configs: {{{configs}}}\n" if configs else ""
    (tmp_path / "topics.yaml").write_text(text)
    (topic,) = read_plan(tmp_path / "topics.yaml", NOW_MS).topics
    return topic


@pytest.mark.parametrize("configs", ["", "segment.bytes: 1048576", "retention.ms: -1"])
def test_old_records_of_a_seed_are_kept_unless_it_says_otherwise(
    tmp_path: Path, configs: str
) -> None:
    topic = seeded(tmp_path, configs, 1, "-500w")
    assert topic.configs["retention.ms"] == "-1"
    assert topic.warning == ""


def test_records_that_retention_deletes_are_counted_with_the_oldest(tmp_path: Path) -> None:
    day = "retention.ms: 86400000"
    topic = seeded(tmp_path, day, "2026-01-31T12:00:00Z", "-25h", "-23h")
    assert topic.configs["retention.ms"] == "86400000"
    assert topic.warning == (
        "topic gauges: 2 of 4 records are older than its retention.ms=86400000 and will be deleted,"
        " the oldest is of 2026-01-31T12:00:00Z; without retention.ms all of them are kept"
    )
    assert seeded(tmp_path, day, "-24h", "-1h").warning == ""


@pytest.mark.parametrize(
    "configs",
    ["message.timestamp.type: LogAppendTime", "cleanup.policy: compact", "retention.ms: soon"],
)
def test_what_retention_does_not_delete_is_not_warned_of(tmp_path: Path, configs: str) -> None:
    both = configs if "retention" in configs else f"retention.ms: 1, {configs}"
    assert seeded(tmp_path, both, 1).warning == ""


def test_the_pages_example_keeps_its_records(tmp_path: Path) -> None:
    named = [(name, body) for _, name, body in BLOCK.findall(PAGE.read_text()) if name]
    assert {name for name, _ in named} >= {"topics.yaml", "orders.jsonl", "more.csv"}
    for name, body in named:
        (tmp_path / name).write_text(body)
    orders, empty = read_plan(tmp_path / "topics.yaml").topics
    assert (orders.record_count, orders.partitions, empty.record_count) == (3, 3, 0)
    assert orders.configs == {"retention.ms": "-1", "max.message.bytes": "100000"}
    assert orders.warning == empty.warning == ""
