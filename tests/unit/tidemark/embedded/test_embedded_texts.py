"""Durations, topics and settings as a test writes them; what is imported for it."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import tidemark
from broker.config.key import ConfigError
from tests.support.brokers.embedding_suite import OURS, environment
from tidemark.dev.settings import ClusterPorts
from tidemark.embedded.broker import duration_ms
from tidemark.embedded.clients import dotted
from tidemark.embedded.settings import node_settings
from tidemark.embedded.topics import setting_text
from tidemark.testing import KafkaContainer, _settings_of

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        ("8d", 8 * DAY_MS),
        ("90m", 5_400_000),
        ("30s", 30_000),
        ("500ms", 500),
        ("1h30m", 5_400_000),
        ("1w2d", 9 * DAY_MS),
        ("0s", 0),
        (timedelta(days=8), 8 * DAY_MS),
        (timedelta(milliseconds=1.9), 1),
    ],
)
def test_durations(duration: str | timedelta, ms: int) -> None:
    assert duration_ms(duration) == ms


@pytest.mark.parametrize(
    "duration",
    ["", "8", "d", "8 d", "-8d", "8D", "8y", "1.5h", "8d ", "²d", "9" * 40 + "d", timedelta(-1)],
)
def test_what_is_no_duration_is_refused(duration: str | timedelta) -> None:
    with pytest.raises(ValueError, match=r"duration|forward"):
        duration_ms(duration)


def test_settings_are_written_as_in_a_file() -> None:
    assert [setting_text(value) for value in (True, False, 7, "x", 1.5)] == [
        "true", "false", "7", "x", "1.5",
    ]  # fmt: skip
    kept = {"log_level": 2, "error_cb": print, "on_delivery": print, "on_commit": print}
    assert dotted(kept) == kept
    assert dotted({"linger_ms": 5, "acks": "all", "group.id": "g"}) == {
        "linger.ms": 5,
        "acks": "all",
        "group.id": "g",
    }


def test_a_lone_broker_may_listen_elsewhere_beside_its_controller(tmp_path: Path) -> None:
    alone = ClusterPorts(19092, ())
    both = {"listeners": "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:0"}
    assert node_settings(tmp_path, alone, "", both)[1]["listeners"] == both["listeners"]
    with pytest.raises(ConfigError, match=r"listeners=PLAINTEXT://:19092: must be omitted"):
        node_settings(tmp_path, alone, "", {"listeners": "PLAINTEXT://:19092"})


def test_a_broker_says_what_it_is_and_its_token_is_not_shown() -> None:
    broker = tidemark.Broker()
    assert repr(broker) == "<tidemark.Broker, not started>"
    token = broker._nodes.token
    assert len(token) > 20
    assert token not in repr({"token": token})
    assert json.loads(json.dumps(token)) == str(token)


def test_variables_of_a_container_become_settings_but_for_where_it_listens() -> None:
    container = KafkaContainer("image", port=1, anything=2)
    container.with_envs(KAFKA_LOG_RETENTION_MS=1000, KAFKA_LISTENERS="PLAINTEXT://0.0.0.0:9092")
    container.with_env("PATH", "/bin").with_cluster_id("c").with_name("n").with_exposed_ports(9092)
    container.with_env("KAFKA_LOG_DIRS", "/var/lib/kafka").with_env("KAFKA_NODE_ID", 1)
    container.env["KAFKA_A__B___C_D"] = True
    assert _settings_of(container.env) == {"log.retention.ms": "1000", "a_b-c.d": "True"}


def test_variables_of_a_container_come_from_its_constructor_and_from_files(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("# none\n\nexport KAFKA_NUM_PARTITIONS = '3'\nKAFKA_LOG_RETENTION_HOURS=1=2\n")
    container = KafkaContainer(env={"KAFKA_LOG_RETENTION_MS": 5}).with_env_file(file)
    assert _settings_of(container.env) == {
        "log.retention.ms": "5",
        "num.partitions": "3",
        "log.retention.hours": "1=2",
    }


def test_container_options_are_accepted_and_calls_that_need_one_fail() -> None:
    container = KafkaContainer("confluentinc/cp-kafka:7.6.0", ports=[1], network=None)
    container = container.with_network("n").with_network_aliases("a", "b").with_command("c")
    container = container.with_volume_mapping("a", "b", "rw").with_tmpfs_mount("/d", size="1g")
    container = container.with_kwargs(privileged=True).waiting_for("x").maybe_emulate_amd64()
    assert container.image == "confluentinc/cp-kafka:7.6.0"
    for name in ("exec", "get_wrapped_container", "get_docker_client", "copy_into_container"):
        with pytest.raises(AttributeError, match=rf"{name}: there is no container.*admin\(\)"):
            getattr(container, name)


def test_what_is_not_started_says_so() -> None:
    broker = tidemark.Broker()
    for ask in (
        lambda: broker.bootstrap_servers,
        lambda: broker.data_dir,
        lambda: broker.console_url,
        broker.producer,
    ):
        with pytest.raises(tidemark.BrokerError, match="is not started"):
            ask()
    for ask in (broker.status, broker.pause, broker.resume):
        with pytest.raises(tidemark.BrokerError, match="does not run"):
            ask()
    broker.stop()
    broker.kill()
    broker.close()
    assert not broker.is_running


IMPORTED = """
import sys
before = set(sys.modules)
import tidemark
from tidemark import AsyncBroker, Broker
from tidemark.testing import KafkaContainer
Broker(topics=["a"])
imported = {name for name in set(sys.modules) - before}
print(" ".join(sorted({name.partition(".")[0] for name in imported})))
"""


def test_nothing_of_the_broker_and_no_package_is_imported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(done.stdout.split())
    assert "tidemark" in imported
    assert not imported & OURS
    foreign = {name.lstrip("_") for name in imported} - {
        name.lstrip("_") for name in sys.stdlib_module_names
    }
    assert foreign == {"tidemark"}
