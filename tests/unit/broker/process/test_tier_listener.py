"""Where the tier's Kafka clients come in: the address, the token, and what Metadata say there."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.config.listeners import TIER_LISTENER
from broker.handlers.api_versions import ApiVersionsHandler, Features
from broker.handlers.metadata import MetadataHandler
from broker.handlers.sasl_authenticate import SaslAuthenticateHandler
from broker.handlers.sasl_handshake import SaslHandshakeHandler
from broker.network.limits import NetworkLimits
from broker.network.registry import HandlerTable
from broker.process.tier_listener import LOOPBACK, TierListener, identity_of_lone_broker
from broker.topics.cluster import ClusterView
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from metadata_topic.image.model import BrokerImage, Endpoint
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.worlds.admin import Admin
from tests.support.worlds.network import Client, frame

OTHER = BrokerImage(2, 0, bytes(16), (Endpoint("PLAINTEXT", "192.0.2.2", 9092),), fenced=False)
NO_ADDRESS_OF_OURS = "192.0.2.1"


def handlers(cluster: ClusterView) -> HandlerTable:
    table = HandlerTable([MetadataHandler(cluster, None)])
    table.add(ApiVersionsHandler(table, lambda: Features({}, {}, -1)))
    table.add(SaslHandshakeHandler())
    table.add(SaslAuthenticateHandler())
    return table


@asynccontextmanager
async def listening(
    cluster: ClusterView, hosts: Sequence[str] = LOOPBACK, **limits: int
) -> AsyncIterator[dict[str, str]]:
    ports = simulated(clock=ManualClock(monotonic_ms=1))
    listener = TierListener(
        handlers(cluster),
        NetworkLimits(**limits),
        ports,
        cluster,
        identity_of_lone_broker(ports.rng),
        lambda path, error: None,
    )
    settings = await listener.open(hosts)
    try:
        yield settings
    finally:
        await listener.close()


async def known(settings: dict[str, str]) -> Client:
    host, _, port = settings["bootstrap.servers"].rpartition(":")
    client = Client(*await asyncio.open_connection(host.strip("[]"), int(port)))
    user, password = settings["sasl.username"], settings["sasl.password"]
    await ask(client, ApiKey.SASL_HANDSHAKE, 1, mechanism=settings["sasl.mechanism"])
    message = f"\0{user}\0{password}".encode()
    found = await ask(client, ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=message)
    assert found.error_code == 0
    return client


async def ask(client: Client, api_key: ApiKey, version: int, **fields: Any) -> Any:
    message = codec.request(api_key)
    body = bytes(message.encode(message.cls(**fields), version))
    client.send(frame(body, api_key=api_key, version=version))
    _, answer = await client.answer()
    assert header_versions(api_key, version) == (1, 0), "without tagged fields"
    return codec.response(api_key).decode(answer, version)[0]


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    made = Admin({}, tmp_path)
    made.create("orders")
    node = made.node
    node.image = replace(node.image, brokers={**node.image.brokers, 2: OTHER})
    return made


async def test_metadata_of_the_tiers_listener_name_only_this_broker(
    admin: Admin,
) -> None:
    async with listening(admin.cluster) as settings:
        client = await known(settings)
        found = await ask(client, ApiKey.METADATA, 4, topics=None)
        host, _, port = settings["bootstrap.servers"].rpartition(":")
        assert [(b.node_id, b.host, b.port) for b in found.brokers] == [(1, host, int(port))]
        (partition,) = found.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (0, 1)
        client.close()
    clients = list(admin.cluster.addresses("PLAINTEXT"))
    assert [(one.id, one.port) for one in clients] == [(1, 9092), (2, 9092)], "as ever"


async def test_api_versions_list_sasl_on_this_listener(admin: Admin) -> None:
    async with listening(admin.cluster) as settings:
        client = await known(settings)
        found = await ask(client, ApiKey.API_VERSIONS, 0)
        ranges = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}
        # What librdkafka before 2.11 wants to see before it authenticates itself.
        assert ranges[ApiKey.SASL_HANDSHAKE] == (0, 1)
        assert ranges[ApiKey.SASL_AUTHENTICATE] == (0, 2)
        client.close()


async def test_limits_on_the_connections_of_clients_do_not_hold_for_the_tier(admin: Admin) -> None:
    async with listening(
        admin.cluster, connections_max=0, connections_per_ip_max=0, descriptors_max=1
    ) as settings:
        for client in [await known(settings) for _ in range(3)]:
            assert (await ask(client, ApiKey.METADATA, 4, topics=None)).brokers
            client.close()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
async def test_a_machine_without_ipv4_has_the_listener_on_the_loopback_of_ipv6(
    admin: Admin,
) -> None:
    async with listening(admin.cluster, (NO_ADDRESS_OF_OURS, "::1")) as settings:
        assert settings["bootstrap.servers"].startswith("[::1]:")
        client = await known(settings)
        found = await ask(client, ApiKey.METADATA, 4, topics=None)
        assert [broker.host for broker in found.brokers] == ["::1"]
        client.close()


async def test_a_machine_without_a_loopback_ends_the_start(admin: Admin) -> None:
    with pytest.raises(OSError, match=TIER_LISTENER):
        async with listening(admin.cluster, [NO_ADDRESS_OF_OURS]):
            pass
