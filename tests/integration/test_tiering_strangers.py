"""The metadata topic of the remote tier is written by the tier alone, however much is logged.

With a real tier process, since only librdkafka writes its settings into log lines, and only it
shows that it gets through a listener which strangers besiege.
"""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.node.cluster_secret import draw_cluster_secret
from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.records import build_batch
from kafka_protocol.wire.api_keys import ApiKey
from runtime.disk import Disk
from runtime.rng import SystemRng
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.raw_client import Closed, RawClient, produce_fields
from tests.support.brokers.reporting_manager import telling, told
from tests.support.brokers.tiered_partition import MakeBroker, fill, reasons

pytestmark = pytest.mark.smoke

CLIENT = "rlmm.config.remote.log.metadata.common.client."
METADATA_TOPIC = "__remote_log_metadata"
STRANGERS = 300


@contextmanager
def at_tiers_port(broker: BrokerProcess) -> Iterator[RawClient]:
    port = int(told(broker)["bootstrap.servers"].rpartition(":")[2])
    with RawClient(broker, port) as client:
        yield client


def write(client: RawClient, client_id: str) -> list[int]:
    """The error of each partition that a stranger writes to."""
    batch = build_batch([(1_700_000_000_000, None, b"\0\0forged", [])])
    codes = []
    for index in range(3):
        fields = produce_fields(METADATA_TOPIC, bytes(batch), index=index)
        answer = client.ask(ApiKey.PRODUCE, 9, fields, client_id=client_id.encode())
        codes.append(answer.responses[0].partition_responses[0].error_code)
    return codes


def log_in(client: RawClient, user: str, password: str) -> tuple[int, str]:
    client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    message = f"\0{user}\0{password}".encode()
    answer = client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})
    return answer.error_code, answer.error_message


def answers(broker: BrokerProcess) -> list[object]:
    """Whatever describes the broker, its topics or its clients."""
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((4, str(broker.node_id)), (4, ""), (2, METADATA_TOPIC))
    ]
    asked: list[tuple[ApiKey, int, dict[str, object]]] = [
        (ApiKey.API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"}),
        (ApiKey.METADATA, 12, {"topics": None}),
        (ApiKey.DESCRIBE_CLUSTER, 1, {}),
        (ApiKey.DESCRIBE_QUORUM, 2, {"topics": []}),
        (ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []}),
        (ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["", "none"]}),
        (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["none"]}),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": METADATA_TOPIC}]}),
        (
            ApiKey.DESCRIBE_CONFIGS,
            4,
            {"resources": resources, "include_synonyms": True, "include_documentation": True},
        ),
    ]
    with RawClient(broker) as client:
        return [client.ask(*each) for each in asked]


def stall(broker: BrokerProcess) -> None:
    """Let the requests of the tier's clients time out, and the tier continue after it."""
    os.kill(broker.pid, signal.SIGSTOP)
    until(lambda: "REQTMOUT" in broker.log_text(), "librdkafka writes of time-outs")
    os.kill(broker.pid, signal.SIGCONT)
    until(lambda: reasons(broker) == [], "the tier continues")


def test_an_unauthenticated_client_cannot_write_the_metadata_of_the_tier(
    make_broker: MakeBroker,
) -> None:
    settings = {
        f"{CLIENT}debug": "all",
        f"{CLIENT}socket.timeout.ms": "2000",
        f"{CLIENT}client.id": "of-the-user",
        "tidemark.control.listener": "127.0.0.1:0",
        "tidemark.control.token": "x" * 16,
    }
    broker = telling(make_broker(tiered=True, settings=settings)).start()
    fill(broker)
    stall(broker)
    access = told(broker)
    user, token = access["sasl.username"], access["sasl.password"]
    with at_tiers_port(broker) as client:
        assert log_in(client, user, token) == (0, "")
        metadata = client.ask(ApiKey.METADATA, 12, {"topics": None})
        told_of = [f"{each.host}:{each.port}" for each in metadata.brokers]
        assert told_of == [access["bootstrap.servers"]], "its clients stay on it"
    with at_tiers_port(broker) as client:
        refused = log_in(client, user, token[:-1] + "!")
        assert refused[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()
    tier = broker.tier_pid()
    shown = {
        "log": broker.log_text(),
        "metrics": broker.http("/metrics")[1],
        "health": broker.http("/health")[1],
        "answers": repr(answers(broker)),
        "refusal": repr(refused),
        **{
            f"{name} of {pid}": Path(f"/proc/{pid}/{name}").read_text(errors="replace")
            for pid in (broker.pid, tier)
            for name in ("cmdline", "environ")
        },
    }
    assert [name for name, text in shown.items() if token in text] == []
    assert "DescribeConfigs" in repr(shown["answers"]), "they are there to be looked at"
    told_ids = {"tidemark-tier", "of-the-user", user, "Tidemark:tier"}
    with RawClient(broker) as client:
        for client_id in sorted(told_ids):
            assert write(client, client_id) == [ErrorCode.POLICY_VIOLATION] * 3
    with at_tiers_port(broker) as client:
        try:
            write(client, "tidemark-tier")
        except Closed:
            return
        raise AssertionError("who does not authenticate itself is served")


def test_strangers_at_the_tiers_port_do_not_lock_it_out(make_broker: MakeBroker) -> None:
    broker = telling(make_broker(tiered=True)).start()
    first = told(broker)
    host, _, port = first["bootstrap.servers"].rpartition(":")
    strangers = [socket.create_connection((host, int(port)), 20) for _ in range(STRANGERS)]
    try:
        broker.kill_tier()
        fill(broker)  # copied by the next one
        assert told(broker) == first, "which comes in by the same token"
    finally:
        for each in strangers:
            each.close()


def test_a_tier_works_by_the_clusters_secret_which_nothing_shows(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    """Only a whole broker shows that its registration, its listener and its tier fit together."""
    secret = tmp_path / "secret"
    draw_cluster_secret(secret, Disk(), SystemRng())
    settings = {"tidemark.cluster.secret.file": str(secret)}
    broker = telling(make_broker(tiered=True, settings=settings)).start()
    fill(broker)
    access = told(broker)
    assert access["sasl.mechanism"] == "SCRAM-SHA-256"
    assert access["sasl.password"] == secret.read_text().strip()
    shown = {
        "log": broker.log_text(),
        "metrics": broker.http("/metrics")[1],
        "health": broker.http("/health")[1],
        "answers": repr(answers(broker)),
    }
    assert [name for name, text in shown.items() if access["sasl.password"] in text] == []
    with RawClient(broker) as client:
        metadata = client.ask(ApiKey.METADATA, 12, {"topics": None})
    told_of = [f"{each.host}:{each.port}" for each in metadata.brokers]
    assert len(told_of) == 1
    assert told_of != [access["bootstrap.servers"]], "clients never hear of it"
