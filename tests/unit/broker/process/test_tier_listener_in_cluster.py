"""Where the tiers of a cluster come in: with real clients, which have to agree on SCRAM."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from broker.config.listeners import TIER_LISTENER, Listener
from broker.handlers.api_versions import ApiVersionsHandler, Features
from broker.handlers.metadata import MetadataHandler
from broker.handlers.sasl_authenticate import SaslAuthenticateHandler
from broker.handlers.sasl_handshake import SaslHandshakeHandler
from broker.network.limits import NetworkLimits
from broker.network.registry import HandlerTable
from broker.node.endpoints import free_port
from broker.process.tier_listener import TierListener, identity_in_cluster
from broker.topics.cluster import ClusterView
from metadata_topic.image.model import BrokerImage, Endpoint
from rlmm.topic_based.confluent_port import ConfluentPort
from rlmm.topic_based.settings import parse
from rlmm.topic_based.topic_port import TopicUnavailableError
from runtime.health_reasons import HEALTHY, HealthText
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.worlds.admin import Admin

SECRET = "a-secret-of-the-cluster-that-is-long-enough-for-all"
SASL_PLAINTEXT = 2
OTHERS = (
    Endpoint("PLAINTEXT", "192.0.2.2", 9092),
    Endpoint(TIER_LISTENER, "192.0.2.2", 9095, SASL_PLAINTEXT),
)


@asynccontextmanager
async def listening(cluster: ClusterView) -> AsyncIterator[dict[str, str]]:
    ports = simulated(clock=ManualClock(monotonic_ms=1))
    table = HandlerTable([MetadataHandler(cluster, None)])
    table.add(ApiVersionsHandler(table, lambda: Features({}, {}, -1)))
    table.add(SaslHandshakeHandler())
    table.add(SaslAuthenticateHandler())
    identity = identity_in_cluster(SECRET, cluster.cluster_id, ports.rng)
    listener = TierListener(
        table, NetworkLimits(), ports, cluster, identity, lambda path, error: None
    )
    place = Listener(TIER_LISTENER, "127.0.0.1", free_port("127.0.0.1"), "SASL_PLAINTEXT")
    settings = await listener.open_in_cluster(place, replace(place, host="localhost"))
    try:
        yield settings
    finally:
        await listener.close()


def brokers_by_librdkafka(settings: dict[str, str]) -> list[tuple[int, str, int]]:
    found = AdminClient(settings).list_topics(timeout=20).brokers.values()
    return sorted((one.id, one.host, one.port) for one in found)


BY_KAFKA_PYTHON = """
import json, sys
from kafka import KafkaConsumer
print(json.dumps(sorted(KafkaConsumer(**json.loads(sys.argv[1])).topics())))
"""
"""In a process of its own: that client leaves sockets to the collector, which warns of them."""


def topics_by_kafka_python(settings: dict[str, str]) -> list[str]:
    given = {
        "bootstrap_servers": settings["bootstrap.servers"],
        "security_protocol": settings["security.protocol"],
        "sasl_mechanism": settings["sasl.mechanism"],
        "sasl_plain_username": settings["sasl.username"],
        "sasl_plain_password": settings["sasl.password"],
    }
    command = [sys.executable, "-c", BY_KAFKA_PYTHON, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    topics: list[str] = json.loads(done.stdout)
    return topics


def refusals_by_librdkafka(settings: dict[str, str]) -> list[str]:
    refusals: list[str] = []
    client = AdminClient({**settings, "error_cb": lambda error: refusals.append(error.str())})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)
    client.poll(0)
    return refusals


def refusals_of_a_tier(settings: dict[str, str], clock: ManualClock) -> list[HealthText]:
    """What its port says after its clients met the broker.

    If that is unhealthy, what it says later.
    """
    configs = {"node.id": "1", "cluster.id": "c", "log.dir": "/nowhere", **settings}
    port = ConfluentPort(parse(configs), clock)
    try:
        for _ in range(20):  # a second each, at most
            with suppress(TopicUnavailableError):
                port.connect()
                break
            port.poll(100)
            if port.refused():
                break
        said = port.refused()
        if not said:
            return [said]
        clock.advance(90_001)
        return [said, port.refused()]
    finally:
        port.close()


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    made = Admin({}, tmp_path)
    made.create("orders")
    return made


def register_listeners(admin: Admin, settings: dict[str, str]) -> None:
    """Let the image say what brokers 1 and 2 registered with."""
    host, _, port = settings["bootstrap.servers"].rpartition(":")
    image = admin.node.image
    own = image.brokers[1]
    endpoint = Endpoint(TIER_LISTENER, host, int(port), SASL_PLAINTEXT)
    brokers = {
        1: replace(own, endpoints=(*own.endpoints, endpoint)),
        2: BrokerImage(2, 0, bytes(16), OTHERS, fenced=False),
    }
    admin.node.image = replace(image, brokers=brokers)


async def test_clients_of_kafka_prove_the_secret_and_hear_of_all_tiers(admin: Admin) -> None:
    async with listening(admin.cluster) as settings:
        register_listeners(admin, settings)
        assert settings["sasl.mechanism"] == "SCRAM-SHA-256"
        host, _, port = settings["bootstrap.servers"].rpartition(":")
        assert host == "localhost", "as it is advertised"
        found = await asyncio.to_thread(brokers_by_librdkafka, settings)
        assert found == [(1, "localhost", int(port)), (2, "192.0.2.2", 9095)]
        image = admin.node.image
        admin.node.image = replace(image, brokers={1: image.brokers[1]})  # it asks any of them
        assert await asyncio.to_thread(topics_by_kafka_python, settings) == ["orders"]
        admin.node.image = image
    clients = [(one.id, one.port) for one in admin.cluster.addresses("PLAINTEXT")]
    assert clients == [(1, 9092), (2, 9092)], "who never hear of it"


async def test_bad_input_another_secret_is_refused_to_a_client_of_kafka(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(admin.cluster) as settings:
        wrong = {**settings, "sasl.password": SECRET[:-1]}
        for _ in range(2):  # at least two tries, in a minute by the clock
            refusals = await asyncio.to_thread(refusals_by_librdkafka, wrong)
    assert any("invalid credentials with SASL mechanism SCRAM-SHA-256" in one for one in refusals)
    assert caplog.text.count("reason=authentication failed") == 1


async def test_health_names_the_broker_of_another_secret(admin: Admin) -> None:
    clock = ManualClock(monotonic_ms=1)
    async with listening(admin.cluster) as settings:
        texts = await asyncio.to_thread(refusals_of_a_tier, settings, clock)
        assert texts == [HEALTHY]
        wrong = {**settings, "sasl.password": SECRET[:-1]}
        said, later = await asyncio.to_thread(refusals_of_a_tier, wrong, clock)
    assert settings["bootstrap.servers"] in said
    assert "invalid credentials" in said
    assert "tidemark.cluster.secret.file" in said
    assert later == HEALTHY, "a minute and a half later"


async def test_bad_input_an_address_of_another_machine_ends_the_start(admin: Admin) -> None:
    ports = simulated(clock=ManualClock(monotonic_ms=1))
    identity = identity_in_cluster(SECRET, "cluster", ports.rng)
    listener = TierListener(
        HandlerTable(), NetworkLimits(), ports, admin.cluster, identity, lambda path, error: None
    )
    place = Listener(TIER_LISTENER, "192.0.2.1", 9095, "SASL_PLAINTEXT")
    with pytest.raises(OSError, match=r"tier://192\.0\.2\.1:9095"):
        await listener.open_in_cluster(place, place)


def test_every_broker_of_a_cluster_derives_the_same_identity() -> None:
    def challenge(secret: str, cluster_id: str) -> bytes:
        identity = identity_in_cluster(secret, cluster_id, simulated().rng)
        assert secret not in repr(identity)
        exchange = identity.authenticator.exchange()
        next(exchange)
        return exchange.send(b"n,,n=tier,r=abc").partition(b",")[2]

    one = challenge(SECRET, "a")
    assert one == challenge(SECRET, "a")
    assert one != challenge(SECRET, "b"), "its salt is the cluster's own"
