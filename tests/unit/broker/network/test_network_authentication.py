"""A listener with an authenticator: nobody is served before it is known who speaks."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.handlers.sasl_authenticate import SaslAuthenticateHandler
from broker.handlers.sasl_handshake import SaslHandshakeHandler
from broker.network.authentication import ANONYMOUS, PlainAuthenticator, Session
from broker.network.limits import NetworkLimits
from broker.network.registry import DecodedHandler, RequestContext
from broker.network.server import SWEEP_MS
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.schema import Versions
from tests.support.worlds.network import Client, Harness, frame, serving
from tests.support.worlds.waiting import until

SECRET = "open sesame"
RIGHT = f"\0ali\0{SECRET}".encode()
AUTHENTICATOR = PlainAuthenticator("ali", SECRET, "User:ali")
WRONG = [
    b"",
    b"\0ali\0open sesam",
    b"\0ali\0open sesame!",
    b"\0baba\0open sesame",
    b"ali\0ali\0open sesame",
    b"\0ali\0open sesame\0",
    "\0ali\0öpen sesame".encode(),
]


class Versionless(DecodedHandler):
    """ApiVersions, as a client asks for it before anything else."""

    api_key = ApiKey.API_VERSIONS
    versions = Versions(0, 4)

    def handle(self, context: RequestContext, request: Any) -> Any:
        return codec.response(ApiKey.API_VERSIONS).cls()


@asynccontextmanager
async def guarded(served: list[str | None] | None = None, **limits: int) -> AsyncIterator[Harness]:
    """A server that echoes Metadata to whom it knows, and notes their principals."""
    principals = served if served is not None else []

    def raw(context: RequestContext, body: bytes) -> list[object]:
        principals.append(context.session.principal)
        return [body]

    async with serving(
        raw,
        SaslHandshakeHandler(),
        SaslAuthenticateHandler(),
        api_versions=Versionless(),
        limits=NetworkLimits(**limits),
        authenticator=AUTHENTICATOR,
    ) as harness:
        yield harness


def asked(api_key: ApiKey, version: int, **fields: Any) -> bytes:
    message = codec.request(api_key)
    body = bytes(message.encode(message.cls(**fields), version))
    tags = b"\0" if header_versions(api_key, version)[0] == 2 else b""
    return frame(tags + body, api_key=api_key, version=version)


async def answered(client: Client, api_key: ApiKey, version: int) -> Any:
    _, body = await client.answer()
    skipped = header_versions(api_key, version)[1]  # no tagged fields, or none set
    return codec.response(api_key).decode(body[skipped:], version)[0]


async def handshake(client: Client, mechanism: str = "PLAIN") -> Any:
    client.send(asked(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism))
    return await answered(client, ApiKey.SASL_HANDSHAKE, 1)


async def authenticate(client: Client, message: bytes, version: int = 2) -> Any:
    client.send(asked(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=message))
    return await answered(client, ApiKey.SASL_AUTHENTICATE, version)


async def known(harness: Harness) -> Client:
    client = await harness.connect()
    await handshake(client)
    assert (await authenticate(client, RIGHT)).error_code == 0
    return client


@pytest.mark.parametrize("version", range(3))
async def test_who_proves_it_is_served_under_its_principal(version: int) -> None:
    served: list[str | None] = []
    async with guarded(served) as harness:
        client = await harness.connect()
        client.send(asked(ApiKey.API_VERSIONS, 0))
        await client.answer()
        shaken = await handshake(client)
        assert (shaken.error_code, list(shaken.mechanisms)) == (0, ["PLAIN"])
        found = await authenticate(client, RIGHT, version)
        assert (found.error_code, found.error_message, bytes(found.auth_bytes)) == (0, "", b"")
        client.send(frame(b"x"))
        assert await client.answer() == (0, b"x")
        assert served == ["User:ali"]


async def test_a_listener_without_an_authenticator_serves_the_anonymous() -> None:
    served: list[str | None] = []

    def raw(context: RequestContext, body: bytes) -> list[object]:
        served.append(context.session.principal)
        return [body]

    async with serving(raw) as harness:
        client = await harness.connect()
        client.send(frame(b"x"))
        await client.answer()
        assert served == [ANONYMOUS] == ["User:ANONYMOUS"]


@pytest.mark.parametrize("message", WRONG)
async def test_bad_input_a_wrong_password_is_answered_and_closes(
    message: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    served: list[str | None] = []
    async with guarded(served) as harness:
        client = await harness.connect()
        await handshake(client)
        client.send(asked(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message) + frame(b"pipelined"))
        found = await answered(client, ApiKey.SASL_AUTHENTICATE, 2)
        assert found.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert found.error_message == "Authentication failed: Invalid username or password"
        assert await client.is_closed()
    assert served == []
    assert "authentication failed" in caplog.text
    assert "sesam" not in caplog.text


async def test_bad_input_another_mechanism_is_told_what_there_is_and_closes() -> None:
    async with guarded() as harness:
        client = await harness.connect()
        shaken = await handshake(client, "GSSAPI")
        assert shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert list(shaken.mechanisms) == ["PLAIN"]
        assert await client.is_closed()


@pytest.mark.parametrize(
    "first",
    [
        frame(b"x"),
        asked(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=RIGHT),
        frame(b"\0\5PLAIN", api_key=ApiKey.SASL_HANDSHAKE, version=0),
        struct.pack(">i", 1) + b"\0",
        struct.pack(">i", 100_000) + b"\0\x12\0\0" + b"\0" * 50_000,
    ],
    ids=["data", "message first", "handshake 0", "no header", "large"],
)
async def test_bad_input_before_it_is_known_a_peer_is_not_served(first: bytes) -> None:
    served: list[str | None] = []
    async with guarded(served) as harness:
        client = await harness.connect()
        client.send(first)
        assert await client.is_closed()
    assert served == []


@pytest.mark.parametrize(
    "second",
    [
        frame(b"x"),
        asked(ApiKey.API_VERSIONS, 0),
    ],
    ids=["data", "ApiVersions"],
)
async def test_bad_input_behind_the_handshake_only_the_message_is_taken(second: bytes) -> None:
    served: list[str | None] = []
    async with guarded(served) as harness:
        client = await harness.connect()
        await handshake(client)
        client.send(second)
        assert await client.is_closed()
    assert served == []


async def test_bad_input_a_second_handshake_is_answered_and_closes() -> None:
    served: list[str | None] = []
    async with guarded(served) as harness:
        client = await harness.connect()
        await handshake(client)
        again = asked(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        client.send(again + asked(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=RIGHT) + frame(b"x"))
        shaken = await answered(client, ApiKey.SASL_HANDSHAKE, 1)
        assert (shaken.error_code, list(shaken.mechanisms)) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert await client.is_closed()
    assert served == []


def test_bad_input_after_a_refusal_nothing_makes_a_session_known() -> None:
    """A generator that has ended answers whatever it is sent as if it had gone to its end."""
    session = Session(AUTHENTICATOR)
    session.handshake("PLAIN")
    assert session.authenticate(WRONG[1]).error == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert session.authenticate(RIGHT).error == ErrorCode.ILLEGAL_SASL_STATE
    assert session.principal is None


async def test_bad_input_a_long_message_closes_also_where_it_comes_at_once() -> None:
    """Longer ones are decoded by a thread: its connection would continue meanwhile."""
    served: list[str | None] = []
    async with guarded(served) as harness:
        client = await harness.connect()
        await handshake(client)
        (connection,) = harness.server._connections
        long = asked(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=bytes(66_000))
        client.send(long[:4_000])
        await until(lambda: len(connection._head) == 4_000)
        client.send(long[4_000:])
        assert await client.is_closed()
    assert served == []


async def test_bad_input_a_known_peer_stays_who_it_is() -> None:
    served: list[str | None] = []
    async with guarded(served) as harness:
        client = await known(harness)
        shaken = await handshake(client)
        assert shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE
        for message in (RIGHT, b"\0baba\0other"):
            found = await authenticate(client, message)
            assert found.error_code == ErrorCode.ILLEGAL_SASL_STATE
        client.send(frame(b"x"))
        assert await client.answer() == (0, b"x")
    assert served == ["User:ali"]


async def test_silent_unknown_clients_are_closed_for_newer_ones_and_in_time() -> None:
    async with guarded(unauthenticated_max=3, unauthenticated_ms_max=10_000) as harness:
        friend = await known(harness)
        silent = [await harness.connect() for _ in range(3)]
        await until(lambda: len(harness.server._connections) == 4)
        late = await known(harness)
        assert await silent[0].is_closed(), "the oldest"
        await until(lambda: len(harness.server._connections) == 4)
        harness.advance(10_000)
        assert len(harness.server._connections) == 4
        harness.advance(SWEEP_MS)
        assert await silent[1].is_closed()
        assert await silent[2].is_closed()
        for client in (friend, late):
            client.send(frame(b"x"))
            assert await client.answer() == (0, b"x")
        assert len(harness.server._connections) == 2


async def test_words_buy_a_stranger_no_time() -> None:
    async with guarded(unauthenticated_ms_max=10_000) as harness:
        client = await harness.connect()
        await until(lambda: len(harness.server._connections) == 1)
        harness.advance(10_000)
        client.send(asked(ApiKey.API_VERSIONS, 0))
        await client.answer()
        await handshake(client)
        harness.advance(SWEEP_MS)
        assert await client.is_closed()
        assert not harness.server._unauthenticated


async def test_bad_input_what_a_stranger_is_answered_is_bounded() -> None:
    async with guarded() as harness:
        client = await harness.connect()
        client.send(asked(ApiKey.API_VERSIONS, 0) * 1_000)
        for _ in range(2):  # as often as a client asks that guesses the version first
            await client.answer()
        assert await client.is_closed()


async def test_who_leaves_while_unknown_keeps_no_place() -> None:
    async with guarded(unauthenticated_max=1) as harness:
        for _ in range(3):
            client = await harness.connect()
            await until(lambda: len(harness.server._connections) == 1)
            client.close()
            await until(lambda: not harness.server._connections)
            assert not harness.server._unauthenticated
        await known(harness)
