"""Where the tiers of a cluster come in: two keys, and what they become in the registration."""

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.node.endpoints import advertised_endpoints, resolve_ports
from tests.support.samples.config import BASE, TIERED

SECRET_FILE = {"tidemark.cluster.secret.file": "/etc/tidemark/secret"}
SASL_PLAINTEXT = 2


def load(*entries: dict[str, str]) -> BrokerConfig:
    merged = dict(BASE)
    for each in entries:
        merged |= each
    return BrokerConfig.load(merged)[0]


def keys(listener: str = "", advertised: str = "") -> dict[str, str]:
    return {"tidemark.tier.listener": listener, "tidemark.tier.advertised.listener": advertised}


@pytest.mark.parametrize(
    ("given", "bound", "told"),
    [
        (keys(), "tier://127.0.0.1:0", "tier://127.0.0.1:0"),
        (keys("10.0.0.7:9095"), "tier://10.0.0.7:9095", "tier://10.0.0.7:9095"),
        (keys("0.0.0.0:9095", "b7:9195"), "tier://0.0.0.0:9095", "tier://b7:9195"),
        (keys("", "localhost:0"), "tier://127.0.0.1:0", "tier://localhost:0"),
    ],
)
def test_in_a_cluster_the_tiers_listener_has_an_address(
    given: dict[str, str], bound: str, told: str
) -> None:
    config = load(TIERED, SECRET_FILE, given)
    shown = (str(config.tier_listener), str(config.advertised_tier_listener))
    assert shown == (bound, told)


def test_a_broker_registers_with_it_under_the_port_that_is_bound() -> None:
    config = resolve_ports(load(TIERED, SECRET_FILE, keys("", "localhost:0")))
    assert config.tier_listener is not None
    (endpoint,) = [one for one in advertised_endpoints(config) if one.name == "tier"]
    assert (endpoint.host, endpoint.port) == ("localhost", config.tier_listener.port)
    assert endpoint.port > 0
    assert endpoint.security_protocol == SASL_PLAINTEXT


def test_a_lone_broker_and_one_without_a_tier_register_none() -> None:
    for entries in (TIERED, SECRET_FILE):
        config = load(entries)
        assert (config.tier_listener, config.advertised_tier_listener) == (None, None)
        assert [one.name for one in advertised_endpoints(config)] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (keys("0.0.0.0:9095"), "needs tidemark.cluster.secret.file"),
        (keys("", "b7:1"), "needs tidemark.cluster.secret.file"),
        (SECRET_FILE | keys("0.0.0.0:9095"), "must name a host"),
        (SECRET_FILE | keys(":9095"), "must name a host"),
        (SECRET_FILE | keys("127.0.0.1"), "must be host:port"),
        (SECRET_FILE | keys("127.0.0.1:9092"), "port 9092 is used"),
    ],
)
def test_bad_input_addresses_of_the_tiers_listener(entries: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(TIERED, entries)
