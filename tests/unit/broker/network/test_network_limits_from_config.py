"""The limits of connections are settings."""

from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.network.limits import NEVER_MS, NO_BOUND, NetworkLimits
from broker.node.endpoints import network_limits

BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


def limits(tmp_path: Path, **settings: str) -> NetworkLimits:
    entries = BASE | {"log.dirs": str(tmp_path)}
    entries |= {key.replace("_", "."): value for key, value in settings.items()}
    config, _ = BrokerConfig.load(entries)
    return network_limits(config)


def test_the_defaults_are_those_of_the_network_layer(tmp_path: Path) -> None:
    defaults = NetworkLimits()
    found = limits(tmp_path)
    for name in NetworkLimits.__dataclass_fields__:
        if name not in ("send_buffer_bytes", "receive_buffer_bytes"):
            assert getattr(found, name) == getattr(defaults, name), name


def test_one_address_has_a_finite_number_of_connections(tmp_path: Path) -> None:
    assert limits(tmp_path).connections_per_ip_max == 2_000
    assert limits(tmp_path, max_connections_per_ip="7").connections_per_ip_max == 7


@pytest.mark.parametrize(
    ("idle_ms", "found"), [("-1", NEVER_MS), ("-9", NEVER_MS), ("0", 0), ("7", 7)]
)
def test_a_negative_idle_time_is_none(tmp_path: Path, idle_ms: str, found: int) -> None:
    assert limits(tmp_path, connections_max_idle_ms=idle_ms).idle_ms_max == found


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, 256 << 20),
        ({"socket_request_max_bytes": str(1 << 30)}, 1 << 30),
        ({"queued_max_request_bytes": "104857600"}, 104_857_600),
        ({"queued_max_request_bytes": "-1"}, NO_BOUND),
        ({"queued_max_request_bytes": "0"}, NO_BOUND),
    ],
)
def test_the_largest_request_fits_into_the_memory_of_all(
    tmp_path: Path, settings: dict[str, str], found: int
) -> None:
    assert limits(tmp_path, **settings).requests_bytes_max == found


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("tidemark.request.receive.timeout.ms", "frame_ms_max"),
        ("tidemark.connection.write.timeout.ms", "write_ms_max"),
        ("tidemark.connection.in.flight.max", "in_flight_max"),
        ("tidemark.connection.unsent.bytes.max", "unsent_bytes_max"),
    ],
)
def test_each_limit_has_a_key(tmp_path: Path, key: str, field: str) -> None:
    assert getattr(limits(tmp_path, **{key.replace(".", "_"): "77"}), field) == 77
    with pytest.raises(ConfigError, match=key):
        limits(tmp_path, **{key.replace(".", "_"): "0"})
