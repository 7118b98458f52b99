import pytest

from broker.config.dynamic import (
    RESIZED_POOLS,
    InvalidBrokerConfig,
    is_list,
    validate_broker_change,
)
from broker.config.keys import BROKER_KEYS
from kafka_protocol.errors import ErrorCode
from tests.support.samples.config import load, tiered


def refusal(changed: dict[str, str | None], *, for_all: bool = False) -> str:
    with pytest.raises(InvalidBrokerConfig) as caught:
        validate_broker_change(changed, broker=tiered(), for_all=for_all)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    return str(caught.value)


def test_a_read_only_key_is_refused_as_in_kafka() -> None:
    message = refusal({"node.id": "4", "log.dirs": "x", "num.io.threads": "3"})
    assert message == "cannot update these configs dynamically: node.id, log.dirs"


@pytest.mark.parametrize(
    "name",
    [
        "remote.log.storage.manager.class.name",
        "metric.reporters",
        "principal.builder.class",
        "ssl.keystore.location",
        "ssl.truststore.location",
        "sasl.kerberos.kinit.cmd",
        "sasl.jaas.config",
        "config.providers",
        "listeners",
        "cordoned.log.dirs",
    ],
)
def test_classes_paths_and_addresses_cannot_be_set_over_the_wire(name: str) -> None:
    for value in ("org.example.Evil", "https://example.org/x", "/etc/passwd", "${env:HOME}"):
        assert name in refusal({name: value})


def test_every_key_of_class_type_is_marked_as_a_resource() -> None:
    for key in BROKER_KEYS.values():
        words = key.name.split(".")
        if key.type.name == "CLASS" or {"class", "location", "url", "path", "file"} & set(
            words[-2:]
        ):
            assert key.resource, key.name


def test_an_unknown_key_is_refused_with_the_nearest_name() -> None:
    assert "did you mean num.io.threads?" in refusal({"num.io.thread": "4"})


@pytest.mark.parametrize(
    "changed",
    [
        {"num.io.threads": "abc"},
        {"num.io.threads": "0"},
        {"log.retention.ms": "0"},
        {"log.local.retention.ms": "900000000"},
        {"log.cleanup.policy": "${env:HOME}"},
    ],
)
def test_a_wrong_value_or_combination_is_an_invalid_request(changed: dict[str, str | None]) -> None:
    name, text = next(iter(changed.items()))
    assert f"{name}={text}" in refusal(changed)


def test_a_key_of_one_broker_cannot_be_set_for_all() -> None:
    key = "sasl.enabled.mechanisms"
    assert key in refusal({key: "PLAIN"}, for_all=True)
    validate_broker_change({key: "PLAIN"}, broker=load(), for_all=False)


def test_a_deleted_key_falls_back() -> None:
    broker = load().with_dynamic({}, {"log.retention.ms": "5"})
    validate_broker_change({"log.retention.ms": None}, broker=broker, for_all=False)


@pytest.mark.parametrize("name", sorted(RESIZED_POOLS))
def test_a_pool_is_at_most_doubled_or_halved_from_the_size_in_force(name: str) -> None:
    broker = tiered().with_dynamic({name: "7"}, {name: "40"})
    for size in ("19", "81", "1000000"):
        with pytest.raises(InvalidBrokerConfig, match=f"{name}={size}: must be .* 20 to 80"):
            validate_broker_change({name: size}, broker=broker, for_all=False)
    for size in ("20", "40", "80"):
        validate_broker_change({name: size}, broker=broker, for_all=False)
    with pytest.raises(InvalidBrokerConfig, match=f"{name}=7: .* current value 40"):
        validate_broker_change({name: None}, broker=broker, for_all=False)  # falls back to 7
    validate_broker_change({name: "500"}, broker=broker, for_all=True)  # 40 stays in force here


@pytest.mark.parametrize("value", ["0", "-1", "x", ""])
def test_an_invalid_default_is_refused_even_if_the_broker_overrides_it(
    value: str,
) -> None:
    """Brokers without a value of their own would ignore all settings over the wire for it."""
    name = "remote.log.reader.threads"
    broker = tiered().with_dynamic({}, {name: "10"})
    with pytest.raises(InvalidBrokerConfig, match=f"{name}={value}: must be"):
        validate_broker_change({name: value}, broker=broker, for_all=True)
    validate_broker_change({name: "500"}, broker=broker, for_all=True)


@pytest.mark.parametrize("unit", ["ms", "bytes"])
def test_the_default_copy_lag_is_changed_within_local_retention(unit: str) -> None:
    lag, local = f"log.remote.copy.lag.{unit}", f"log.local.retention.{unit}"
    broker = tiered().with_dynamic({local: "1000"}, {})
    for value in ("-1", "0", "1000"):
        validate_broker_change({lag: value}, broker=broker, for_all=True)
    for value in ("-2", "1001", "x"):
        with pytest.raises(InvalidBrokerConfig, match=f"{lag}={value}"):
            validate_broker_change({lag: value}, broker=broker, for_all=True)
    broker = broker.with_dynamic({local: "1000", lag: "900"}, {})
    with pytest.raises(InvalidBrokerConfig, match=f"{lag}=900: .* local retention of 800"):
        validate_broker_change({local: "800"}, broker=broker, for_all=True)


def test_lists_are_known() -> None:
    assert is_list("log.cleanup.policy")
    assert not is_list("num.io.threads")
    assert not is_list("no.such")
