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
from kafka_client.security import ClientSettingError, scram, security_of
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


def with_trust(**more: str) -> dict[str, str]:
    """A file for Kafka's tools that trusts the node of these tests."""
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(PEM)}
    return {"security.protocol": "SSL", **trust, **more}


def test_without_a_protocol_settings_of_tls_and_sasl_are_idle_as_in_kafka() -> None:
    assert security_of({"ssl.cipher.suites": "x", "sasl.mechanism": "GSSAPI"}) == {}


def test_a_file_of_kafkas_tools_says_whom_to_trust_and_who_one_is() -> None:
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(PEM)}
    found = security_of(with_trust(**own))
    assert found.keys() == {"tls"}
    tls = found["tls"]
    assert tls.check_hostname
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert len(tls.get_ca_certs()) == 1
    endpoint = {"ssl.endpoint.identification.algorithm": ""}
    anywhere = security_of(with_trust(**endpoint))["tls"]
    assert (anywhere.check_hostname, anywhere.verify_mode) == (False, ssl.CERT_REQUIRED)
    text = {"security.protocol": "ssl", "ssl.truststore.certificates": PEM.read_text()}
    assert len(security_of(text)["tls"].get_ca_certs()) == 1


SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS: allowed are PLAINTEXT, SSL"),
        (with_trust(**{"ssl.ca.location": "/none.pem"}), "ssl.ca.location=/none.pem: No such file"),
        (with_trust(**{"ssl.cipher.suites": "x"}), "ssl.cipher.suites: this command cannot"),
        (
            with_trust(**{"ssl.keystore.location": "/me.p12", "ssl.keystore.type": "PKCS12"}),
            "ssl.keystore.location: this command cannot do what it says; give a file of PEM",
        ),
        (
            {**SASL, "sasl.mechanism": "GSSAPI"},
            "sasl.mechanism=GSSAPI: known here are PLAIN, S",
        ),
        (SASL, "sasl.username, sasl.password: missing; sasl.jaas.config may say it, too"),
        ({**SASL, "sasl.kerberos.service.name": "x"}, "sasl.kerberos.service.name: this command"),
    ],
)
def test_what_this_client_cannot_do_is_one_error(given: dict[str, str], words: str) -> None:
    with pytest.raises(ClientSettingError, match=words):
        security_of(given)


async def test_a_brokers_certificate_is_checked_as_the_file_says() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(PEM)
    question = request(ApiKey.DESCRIBE_CLUSTER).cls()

    async def ask(host: str, port: int, given: dict[str, str]) -> Any:
        with BlockingClient(f"{host}:{port}", **security_of(given)) as client:
            return await asyncio.to_thread(
                client.ask, (host, port), ApiKey.DESCRIBE_CLUSTER, 1, question
            )

    async with serving(serve, APIS, tls=server) as node:
        assert (await ask("127.0.0.1", node.port, with_trust())).error_code == 0
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.2"):
            await ask("127.0.0.2", node.port, with_trust())


def test_scram_says_what_rfc_7677_shows() -> None:
    talk = scram("sha256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert next(talk) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert talk.send(challenge) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        talk.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=999999999",
        b"r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==",
        b"nothing",
    ],
)
def test_a_server_that_answers_otherwise_than_scram_gets_no_proof(challenge: bytes) -> None:
    talk = scram("sha256", "a,b=c", "x", "mine")
    assert next(talk) == b"n,,n=a=2Cb=3Dc,r=mine"
    with pytest.raises(ConnectionError, match="SCRAM message cannot be used"):
        talk.send(challenge)


def test_a_server_that_does_not_know_the_password_is_not_trusted() -> None:
    talk = scram("sha512", "me", "x", "mine")
    next(talk)
    talk.send(b"r=mine1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    with pytest.raises(ConnectionError, match="does not prove"):
        talk.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def sasl(mechanism: str, answers: list[Any]) -> list[tuple[ApiKey, Any]]:
    """Authenticate with `mechanism`; returns what was asked, until the answers end."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    jaas = f'{login} username="ann" password="hush";'
    given = SASL | {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    talk = security_of(given)["authenticate"]()
    asked = [next(talk)]
    for answer in answers:
        try:
            asked.append(talk.send(answer))
        except StopIteration:
            break
    return [(key, body) for key, _, body in asked]


def test_sasl_asks_for_the_mechanism_and_sends_its_messages() -> None:
    taken = response(ApiKey.SASL_HANDSHAKE).cls(error_code=0, mechanisms=["PLAIN"])
    done = response(ApiKey.SASL_AUTHENTICATE).cls(error_code=0)
    (_, handshake), (key, message) = sasl("PLAIN", [taken, done])
    assert handshake.mechanism == "PLAIN"
    assert (key, bytes(message.auth_bytes)) == (ApiKey.SASL_AUTHENTICATE, b"\0ann\0hush")


def test_a_refusal_of_mechanism_or_credentials_says_what_the_broker_says() -> None:
    taken = response(ApiKey.SASL_HANDSHAKE).cls(error_code=0, mechanisms=["PLAIN"])
    other = response(ApiKey.SASL_HANDSHAKE).cls(error_code=33, mechanisms=["SCRAM-SHA-256"])
    with pytest.raises(ConnectionError, match="PLAIN: the broker takes SCRAM-SHA-256"):
        sasl("PLAIN", [other])
    wrong = response(ApiKey.SASL_AUTHENTICATE).cls(error_code=58, error_message="Invalid password")
    with pytest.raises(ConnectionError, match="Invalid password"):
        sasl("PLAIN", [taken, wrong])
