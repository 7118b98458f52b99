import json
import re
from pathlib import Path

import pytest

from broker.config.key import ConfigError, ConfigType, Key
from broker.config.keys import BROKER_KEYS, METADATA_MANAGER_KEYS, TOPIC_KEYS

GOLDEN = Path(__file__).parents[3] / "golden/configs/kafka-4.3.1.jsonl"
KAFKA = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
TABLES = {"broker": BROKER_KEYS, "topic": TOPIC_KEYS, "rlmm": METADATA_MANAGER_KEYS}
RANGE = re.compile(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\](?: or (-?\d+))?")
# Stricter than Kafka on purpose: a log cannot live with segments of a negative size.
OURS = {"internal.segment.bytes"}
# Finite on purpose: without a limit one client can take every descriptor, or all memory.
OTHER_DEFAULTS = {"max.connections.per.ip": "2000", "queued.max.request.bytes": "268435456"}


@pytest.mark.parametrize("theirs", KAFKA, ids=lambda d: f"{d['scope']}-{d['name']}")
def test_every_key_of_kafka_is_known_with_its_type_default_and_range(theirs: dict) -> None:
    key = TABLES[theirs["scope"]][theirs["name"]]
    assert key.type.name == theirs["type"]
    assert key.default == OTHER_DEFAULTS.get(key.name, theirs["default"])
    assert key.required == theirs["required"]
    assert key.internal == theirs["internal"]
    if theirs["dynamic"] is not None:
        assert key.dynamic.value == theirs["dynamic"]
    if key.name in OURS:
        return
    bounds = RANGE.fullmatch(theirs["validator"] or "")
    low, high, also = bounds.groups() if bounds else (None, None, None)
    assert key.low == (float(low) if low else None)
    assert key.high == (float(high) if high else None)
    assert key.also == ((int(also),) if also else ())


def test_every_default_passes_its_own_check_and_shows_as_kafka_prints_it() -> None:
    for table in TABLES.values():
        for key in table.values():
            assert key.show(key.parse(key.default)) == key.default, key.name


def test_every_key_has_one_short_line_of_help() -> None:
    for table in TABLES.values():
        for key in table.values():
            assert key.doc.endswith("."), key.name
            assert len(key.doc) <= 100, key.name
            assert "\n" not in key.doc


def test_topic_keys_name_broker_keys_of_the_same_type() -> None:
    for key in TOPIC_KEYS.values():
        if key.server_key:
            assert BROKER_KEYS[key.server_key].type is key.type


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("BOOLEAN", " TRUE ", True),
        ("BOOLEAN", "false", False),
        ("INT", "-2147483648", -(2**31)),
        ("INT", "+7", 7),
        ("LONG", "9223372036854775807", 2**63 - 1),
        ("DOUBLE", "1e3", 1000.0),
        ("LIST", " a , b ", ("a", "b")),
        ("LIST", "", ()),
        ("LIST", "b,a,b", ("b", "a")),
        ("STRING", " x ", "x"),
        ("PASSWORD", " x ", " x "),
    ],
)
def test_text_becomes_a_value(kind: str, text: str, value: object) -> None:
    assert Key("k", ConfigType[kind], None, "").parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("BOOLEAN", "yes"),
        ("BOOLEAN", ""),
        ("INT", "2147483648"),
        ("INT", "1.0"),
        ("INT", ""),
        ("INT", "0x10"),
        ("INT", "1_000"),
        ("INT", "٣"),
        ("INT", "9" * 5000),
        ("SHORT", "32768"),
        ("LONG", "9223372036854775808"),
        ("DOUBLE", "nan"),
        ("DOUBLE", "many"),
        ("LIST", "a,,b"),
    ],
)
def test_a_wrong_text_is_refused_naming_key_value_and_what_is_allowed(kind: str, text: str) -> None:
    key = Key("some.key", ConfigType[kind], None, "")
    with pytest.raises(ConfigError) as caught:
        key.parse(text)
    shown, _, allowed = str(caught.value).partition(": ")
    assert shown == f"some.key={text}" or not text.isascii() or len(text) > 300
    assert allowed.startswith("must be")


def test_ranges_have_both_ends_included_and_exceptions() -> None:
    key = TOPIC_KEYS["compression.gzip.level"]
    assert [key.parse(text) for text in ("1", "9", "-1")] == [1, 9, -1]
    for text in ("0", "10", "-2"):
        with pytest.raises(ConfigError, match="from 1 to 9 or -1"):
            key.parse(text)


def test_a_wrong_secret_is_not_repeated_in_the_message() -> None:
    key = Key("k", ConfigType.PASSWORD, None, "", choices=("a",))
    with pytest.raises(ConfigError) as caught:
        key.parse("hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_double_shows_as_java_prints_it() -> None:
    key = BROKER_KEYS["log.cleaner.io.max.bytes.per.second"]
    assert key.show(1.7976931348623157e308) == "1.7976931348623157E308"
    assert key.show(1e-05) == "1.0E-5"
