"""TLS and SASL go in front of the first request, with and without an event loop."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

import tests.support.kafka_client
from kafka_client.blocking import BlockingClient, UnreachableError
from kafka_client.connection import Connection
from kafka_client.exchange import ConnectionSettings
from kafka_client.requests import NotSentError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from runtime.ports import system_ports
from tests.support.kafka_client.node import framed, serving

PEM = Path(tests.support.kafka_client.__file__).parent / "localhost.pem"
APIS = {ApiKey.DESCRIBE_CLUSTER: (0, 1), ApiKey.SASL_AUTHENTICATE: (2, 2)}


def serve(key: int, version: int, number: int) -> bytes:
    codec = response(ApiKey(key))
    body = codec.encode(codec.cls(), version)
    return framed(number.to_bytes(4, "big") + b"\0" + body)


def mechanism() -> Any:
    cls = request(ApiKey.SASL_AUTHENTICATE).cls
    answer = yield ApiKey.SASL_AUTHENTICATE, 2, cls(auth_bytes=b"secret")
    assert answer.error_code == 0


@pytest.mark.parametrize("face", ["asynchronous", "blocking"])
@pytest.mark.parametrize("is_trusted", [True, False])
async def test_requests_go_over_tls_after_authentication(face: str, *, is_trusted: bool) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(PEM)
    tls = ssl.create_default_context(cafile=str(PEM) if is_trusted else None)
    question = request(ApiKey.DESCRIBE_CLUSTER).cls()
    ports = system_ports(asyncio.get_running_loop())

    async def ask(port: int) -> Any:
        if face == "blocking":
            with BlockingClient(f"127.0.0.1:{port}", tls=tls, authenticate=mechanism) as client:
                return await asyncio.to_thread(
                    client.ask, ("127.0.0.1", port), ApiKey.DESCRIBE_CLUSTER, 1, question
                )
        settings = ConnectionSettings(client_id="c", tls=tls, authenticate=mechanism)
        connection = Connection(("127.0.0.1", port), settings, ports)
        try:
            return await connection.request(ApiKey.DESCRIBE_CLUSTER, question, timeout_ms=10_000)
        finally:
            connection.close()

    async with serving(serve, APIS, tls=server) as node:
        if is_trusted:
            assert (await ask(node.port)).error_code == 0
            assert len(node.versions) == 2
        else:
            with pytest.raises((NotSentError, UnreachableError), match="self-signed"):
                await ask(node.port)
            assert node.versions == []
    ports.executors.shutdown()
