"""The control listener: who may send commands, and what is answered to nonsense."""

import asyncio
import json
import logging
from typing import Any

import pytest

from broker.testing.control.commands import ControlCommands, ControlError, number_of, text_of
from broker.testing.control.listener import ControlListener
from kafka_protocol.errors import ErrorCode, KafkaError

TOKEN = "a-token-of-this-test"


class Refused(KafkaError):
    code = ErrorCode.INVALID_TOPIC_EXCEPTION


def commands() -> ControlCommands:
    async def echo(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"got": arguments}

    async def refuse(arguments: dict[str, Any]) -> dict[str, Any]:
        raise ControlError("first line\nand a second")

    async def refuse_topic(arguments: dict[str, Any]) -> dict[str, Any]:
        raise Refused("the topic t is unknown")

    async def fail(arguments: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("a mistake of ours")

    made = ControlCommands()
    made.add("echo", echo)
    made.add("refuse", refuse)
    made.add("refuse.topic", refuse_topic)
    made.add("fail", fail)
    return made


def ask(
    path: str, body: bytes = b"{}", *, authorization: str = f"Bearer {TOKEN}", method: str = "POST"
) -> tuple[int, Any]:
    head = f"{method} {path} HTTP/1.1\r\nAuthorization: {authorization}\r\n"
    return talk(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body)


def talk(request: bytes) -> tuple[int, Any]:
    async def run() -> bytes:
        listener = ControlListener(("127.0.0.1", 0), TOKEN, commands())
        await listener.start()
        host, _, port = listener.address.rpartition(":")
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request)
            answer = await reader.read()
            writer.close()
            return answer
        finally:
            await listener.stop()

    head, _, body = asyncio.run(run()).partition(b"\r\n\r\n")
    text = body.decode()
    return int(head.split(b" ")[1]), json.loads(text) if text.startswith("{") else text


def test_a_command_gets_its_arguments_and_its_answer_goes_back() -> None:
    arguments = {"topic": "tides", "ms": 3}
    assert ask("/v1/echo", json.dumps(arguments).encode()) == (200, {"got": arguments})


def test_a_command_without_a_body_has_no_arguments() -> None:
    request = f"POST /v1/echo HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    assert talk(request.encode()) == (200, {"got": {}})


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
     "Bearer \xff\xfe"],
)  # fmt: skip
def test_without_the_token_nothing_is_done(authorization: str) -> None:
    status, answer = ask("/v1/echo", authorization=authorization)
    assert status == 401
    assert TOKEN not in answer["error"]


@pytest.mark.parametrize(
    ("path", "body", "method", "status", "error"),
    [
        ("/v1/nosuch", b"{}", "POST", 404, "echo, fail, refuse"),
        ("/v2/echo", b"{}", "POST", 404, "/v1/"),
        ("/v1/echo", b"{}", "GET", 405, "POST"),
        ("/v1/echo", b"{", "POST", 400, "not JSON"),
        ("/v1/echo", b"[]", "POST", 400, "JSON object"),
        ("/v1/echo", b"\xff\xfe\xfd", "POST", 400, "not JSON"),
        ("/v1/echo", b"[" * 200_000, "POST", 400, "not JSON"),
        ("/v1/refuse", b"{}", "POST", 400, "first line and a second"),
        ("/v1/refuse.topic", b"{}", "POST", 409, "the topic t is unknown"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    path: str, body: bytes, method: str, status: int, error: str
) -> None:
    got, answer = ask(path, body, method=method)
    assert got == status
    assert error in answer["error"]
    assert "\n" not in answer["error"]


def test_a_body_beyond_the_limit_is_refused_before_it_is_read() -> None:
    head = f"POST /v1/echo HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n"
    assert talk(f"{head}Content-Length: 99999999\r\n\r\n".encode())[0] == 413
    assert talk(f"{head}Content-Length: -1\r\n\r\n".encode())[0] == 400
    assert talk(f"{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode())[0] == 400


def test_a_mistake_of_ours_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    assert ask("/v1/fail")[0] == 500
    assert "a mistake of ours" in caplog.text


def test_the_token_and_the_arguments_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ask("/v1/echo", b'{"secret": "of-a-test"}')
        ask("/v1/echo", authorization="Bearer a-wrong-token")
    assert "control command: echo" in caplog.text
    for text in (TOKEN, "of-a-test", "a-wrong-token"):
        assert text not in caplog.text


def test_arguments_are_taken_by_their_type() -> None:
    assert text_of({"topic": "a"}, "topic") == "a"
    assert number_of({}, "ms", 7) == 7
    for wrong in ({}, {"ms": "7"}, {"ms": True}, {"ms": None}, {"ms": 1.5}):
        with pytest.raises(ControlError, match="ms"):
            number_of(wrong, "ms")
