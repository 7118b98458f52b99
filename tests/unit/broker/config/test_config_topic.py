import pytest

from broker.config.topic_config import (
    NEVER_TIERED_TOPICS,
    InvalidConfig,
    log_config,
    normalise,
    validate,
)
from kafka_protocol.errors import ErrorCode
from tests.support.samples.config import load, load_entries, tiered

ON = {"remote.storage.enable": "true"}


def refusal(overrides: dict[str, str | None], **more: object) -> str:
    broker = more.pop("broker", None) or tiered()
    with pytest.raises(InvalidConfig) as caught:
        validate(overrides, broker=broker, **more)  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return str(caught.value)


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    assert refusal({"retention.mss": "1"}) == (
        "unknown topic config retention.mss: did you mean retention.ms?"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "abc"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "foo"),
        ("segment.bytes", "10"),
        ("compression.gzip.level", "0"),
        ("min.cleanable.dirty.ratio", "2"),
        ("remote.storage.enable", "maybe"),
        ("local.retention.ms", "-3"),
        ("message.timestamp.type", "Now"),
        ("internal.segment.bytes", "-7"),
        ("leader.replication.throttled.replicas", "x"),
        ("follower.replication.throttled.replicas", "none"),
        ("segment.bytes", "${env:HOME}"),
        ("compression.type", "${env:HOME}"),
        ("compression.type", "org.example.Codec"),
        ("cleanup.policy", "https://example.org/policy"),
        ("leader.replication.throttled.replicas", "/etc/passwd"),
        ("preallocate", "file:///etc/passwd"),
    ],
)
def test_a_wrong_value_is_refused_and_never_resolved(key: str, value: str) -> None:
    message = refusal({key: value})
    assert message.startswith(f"{key}={value}: must be")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact,delete"),
        ("retention.bytes", "-7"),
        ("preallocate", "TRUE"),
        ("retention.ms", " 100001 "),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
    ],
)
def test_what_kafka_accepts_is_accepted(key: str, value: str) -> None:
    validate({key: value}, broker=tiered())


def test_a_message_stays_short_and_printable_whatever_the_client_sends() -> None:
    for overrides in ({"retention.ms": "9\n" * 100_000}, {"\x1b[2J" + "x" * 100_000: "1"}):
        message = refusal({**overrides})
        assert len(message) < 1000
        assert message.isprintable()


def test_a_missing_value_is_refused() -> None:
    assert "retention.ms" in refusal({"retention.ms": None})


def test_compaction_lags_must_not_cross() -> None:
    message = refusal({"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "5"})
    assert "min.compaction.lag.ms=100" in message
    assert "max.compaction.lag.ms=5" in message


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_k405_03_a_compacted_topic_is_not_tiered(policy: str) -> None:
    assert f"cleanup.policy={policy}" in refusal(ON | {"cleanup.policy": policy})
    message = refusal(ON | {"cleanup.policy": policy}, existing=ON | {"cleanup.policy": "delete"})
    assert "remote.storage.enable" in message


def test_a_tiered_topic_may_have_no_policy() -> None:
    validate(ON | {"cleanup.policy": ""}, broker=tiered())


def test_k405_04_tiering_needs_the_system_switch_and_names_both_keys() -> None:
    message = refusal(ON, broker=load())
    assert "remote.storage.enable=true" in message
    assert "remote.log.storage.system.enable=false" in message


@pytest.mark.parametrize("topic", sorted(NEVER_TIERED_TOPICS))
def test_k405_05_internal_topics_are_never_tiered(topic: str) -> None:
    assert topic in refusal(ON, topic=topic)
    validate({"remote.storage.enable": "false"}, broker=tiered(), topic=topic)


@pytest.mark.parametrize("unit", ["ms", "bytes"])
@pytest.mark.parametrize("local", ["-1", "200001"])
def test_local_retention_stays_within_a_finite_total(unit: str, local: str) -> None:
    total = {f"retention.{unit}": "200000"}
    message = refusal(ON | total | {f"local.retention.{unit}": local})
    assert f"local.retention.{unit}={local}" in message
    assert f"retention.{unit}=200000" in message
    validate(ON | total | {f"local.retention.{unit}": "200000"}, broker=tiered())
    validate(ON | {f"retention.{unit}": "-1", f"local.retention.{unit}": local}, broker=tiered())
    validate(total | {f"local.retention.{unit}": local}, broker=tiered())  # not tiered: no rule


def test_local_retention_is_compared_with_the_brokers_total() -> None:
    broker = load_entries(
        {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "a:B",
            "log.retention.hours": "1",
        }
    )
    assert "retention.ms=3600000" in refusal(ON | {"local.retention.ms": "3600001"}, broker=broker)


@pytest.mark.parametrize("unit", ["ms", "bytes"])
def test_without_copying_local_retention_is_the_total(unit: str) -> None:
    off = ON | {"remote.log.copy.disable": "true", f"retention.{unit}": "9"}
    assert "remote.log.copy.disable" in refusal(off | {f"local.retention.{unit}": "5"})
    validate(off | {f"local.retention.{unit}": "9"}, broker=tiered())
    validate(off | {f"local.retention.{unit}": "-2"}, broker=tiered())


@pytest.mark.parametrize("unit", ["ms", "bytes"])
def test_the_copy_lag_stays_within_local_retention(unit: str) -> None:
    lag = {f"remote.copy.lag.{unit}": "6"}
    assert "remote.copy.lag" in refusal(ON | lag | {f"retention.{unit}": "5"})
    kept = {f"retention.{unit}": "9", f"local.retention.{unit}": "5"}
    assert "remote.copy.lag" in refusal(ON | lag | kept)
    validate(ON | lag | {f"retention.{unit}": "6"}, broker=tiered())


def test_tiering_is_turned_off_only_with_a_word_about_the_remote_data() -> None:
    off = {"remote.storage.enable": "false"}
    message = refusal(off, existing=ON)
    assert "remote.log.delete.on.disable=true" in message
    refusal({}, existing=ON)  # deleting the override turns it off as well
    validate(off | {"remote.log.delete.on.disable": "true"}, broker=tiered(), existing=ON)
    validate(off, broker=tiered(), existing=off)
    validate(off, broker=tiered(), existing=None)


def test_an_order_to_delete_remote_data_holds_while_tiering_is_off() -> None:
    dropping = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    kept = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "false"}
    assert "cannot be taken back" in refusal(kept, existing=dropping)
    refusal({}, existing=dropping)  # deleting the override takes it back as well
    validate(dropping | {"retention.ms": "5"}, broker=tiered(), existing=dropping)
    validate(ON, broker=tiered(), existing=dropping)  # tiered again: nothing is left behind


def test_k405_06_old_names_are_translated_and_never_kept() -> None:
    old = {"remote.log.storage.enable": "true", "local.log.retention.ms": "5"}
    assert normalise(old) == {"remote.storage.enable": "true", "local.retention.ms": "5"}
    assert log_config(tiered(), old).remote_storage_enable
    with pytest.raises(InvalidConfig) as caught:
        normalise({"remote.log.storage.enable": "true", "remote.storage.enable": "false"})
    assert "remote.log.storage.enable=true" in str(caught.value)
    assert "remote.storage.enable=false" in str(caught.value)
    same = {"remote.log.storage.enable": "true", "remote.storage.enable": "TRUE"}
    assert list(normalise(same)) == ["remote.storage.enable"]


def test_logs_take_the_brokers_defaults_and_the_topics_overrides() -> None:
    broker = load_entries(
        {
            "log.retention.minutes": "2",
            "log.roll.hours": "3",
            "log.flush.scheduler.interval.ms": "4",
            "log.cleanup.policy": "compact,delete",
            "message.max.bytes": "5000",
            "log.message.timestamp.type": "LogAppendTime",
        }
    )
    plain = log_config(broker, {})
    assert plain.retention_ms == 120_000
    assert plain.segment_ms == 10_800_000
    assert plain.flush_ms == 4
    assert plain.cleanup_policy == {"compact", "delete"}
    assert plain.max_message_bytes == 5000
    assert plain.message_timestamp_type == "LogAppendTime"
    assert plain.segment_bytes == 1 << 30
    own = log_config(broker, {"retention.ms": "7", "internal.segment.bytes": "4096"})
    assert own.retention_ms == 7
    assert own.segment_bytes == 4096


def test_any_negative_retention_size_means_no_limit() -> None:
    assert log_config(load(), {"retention.bytes": "-7"}).retention_bytes == -1
