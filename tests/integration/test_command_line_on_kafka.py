"""The command line against Apache Kafka: listeners and groups that our own brokers do not serve.

Only Kafka has listeners of TLS and SASL, and groups of the protocol of KIP-848.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

import tests.support.kafka_client
from tests.support.brokers.process import ROOT, free_ports
from tests.support.kafka.peer import KafkaPeer
from tests.support.kafka.tools import kafka_tool, require_kafka_tools

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.lasts(seconds=40)]

PEM = Path(tests.support.kafka_client.__file__).parent / "localhost.pem"
LOGIN = "org.apache.kafka.common.security.{}LoginModule required"
PLAIN, SCRAM = LOGIN.format("plain.Plain"), LOGIN.format("scram.Scram")
TRUST = f"ssl.truststore.type=PEM\nssl.truststore.location={PEM}\n"


class Kafka(KafkaPeer):
    """One node that also listens with TLS, and with SASL in the clear and over TLS."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.ports = dict(zip(("SSL", "SASL_PLAINTEXT", "SASL_SSL"), free_ports(3), strict=True))
        names = {"PLAINTEXT": self.port, "CONTROLLER": self.controller_port, **self.ports}
        jaas = f'{PLAIN} user_ann="hush";'
        self.overrides = (
            "listeners=" + ",".join(f"{name}://127.0.0.1:{at}" for name, at in names.items()),
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            + ",".join(f"{name}:{name}" for name in self.ports),
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={PEM}",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms=SCRAM-SHA-512",
            f"listener.name.sasl_plaintext.plain.sasl.jaas.config={jaas}",
            f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={SCRAM};",
        )


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    require_kafka_tools()
    made = Kafka(tmp_path_factory.mktemp("kafka"))
    made.start()
    try:
        user = "--entity-type", "users", "--entity-name", "bob", "--alter"
        password = "--add-config", "SCRAM-SHA-512=[password=se=cr,et]"
        kafka_tool("configs", "--bootstrap-server", made.bootstrap, *user, *password)
        yield made
    finally:
        made.kill()


def tidemark(*arguments: str, stdin: str = "", code: int = 0) -> str:
    """Run a command; returns what it printed, errors too."""
    done = subprocess.run(
        [sys.executable, "-m", "tidemark.cli", *arguments],
        input=stdin, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=60, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    return done.stdout


FILES = {
    "SSL": TRUST,
    "SASL_PLAINTEXT": "sasl.mechanism=PLAIN\n"
    f'sasl.jaas.config={PLAIN} username="ann" password="hush";\n',
    "SASL_SSL": f"{TRUST}sasl.mechanism=SCRAM-SHA-512\n"
    f'sasl.jaas.config={SCRAM} username="bob" password="se=cr,et";\n',
}


@pytest.mark.parametrize("protocol", FILES)
def test_a_file_of_kafkas_tools_reaches_each_listener(
    kafka: Kafka, protocol: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol={protocol}\n{FILES[protocol]}")
    at = ("-b", f"127.0.0.1:{kafka.ports[protocol]}", "-F", str(file))
    topic = f"over-{protocol}"
    assert f"Created topic {topic}." in tidemark("topics", "create", topic, *at)
    assert "1 record acknowledged" in tidemark("produce", topic, *at, stdin="one\n")
    assert tidemark("consume", topic, *at) == "one\n"
    assert "LeaderId:" in tidemark("metadata-quorum", *at, "describe", "--status")
    assert tidemark("cat", topic, *at, "--columns", "value") == '{"value":"one"}\n'
    assert f"Deleted topic {topic}." in tidemark("topics", "delete", topic, "--yes", *at)

    file.write_text(file.read_text().replace("hush", "wrong").replace("se=cr", "wrong"))
    if protocol != "SSL":
        said = tidemark("topics", "list", *at, code=1)
        assert "invalid credentials" in said.lower() or "Invalid username" in said
        assert said.count("\n") == 1


def test_a_group_of_the_new_protocol_is_described_reset_and_deleted(
    kafka: Kafka, tmp_path: Path
) -> None:
    at = ("-b", kafka.bootstrap)
    tidemark("topics", "create", "tides", "-p", "2", *at)
    tidemark("produce", "tides", "-p", "0", *at, stdin="one\ntwo\n")
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "new",
            "group.protocol": "consumer",
            "client.id": "app",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["tides"])
    try:
        ends_at = time.monotonic() + 30
        while not (found := consumer.consume(2, 1)):
            assert time.monotonic() < ends_at
        assert len(found) == 2
        consumer.commit(asynchronous=False)
        assert "new    consumer" in tidemark("groups", "list", *at)
        said = tidemark("groups", "describe", "new", *at)
        assert "ASSIGNMENT-STRATEGY: uniform  #MEMBERS: 1" in said
        rows = [line.split() for line in said.splitlines()]
        assert ["tides", "0", "2", "2", "0", "app"] in rows
        assert any(row[-1:] == ["tides:0,1"] for row in rows)
        reset = ("groups", "reset", "new", "-t", "tides", "--to-earliest", "--execute")
        assert "is inactive" in tidemark(*reset, *at, code=1)
    finally:
        consumer.close()
    assert "2 offset(s) of group new were set." in tidemark(*reset, *at)
    assert tidemark("groups", "delete", "new", "--yes", *at) == "Deleted group new.\n"
