"""One request over a connection of its own: what is no answer to it is none."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.node.one_request import NO_ANSWER, Conversation
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from runtime.executors import InlinePool
from tests.support.worlds.waiting import PATIENCE_S

VERSION = 1
Answer = Callable[[bytes], bytes]
"""Makes all bytes that follow a request's correlation id."""


def body(cluster_id: str = "ours") -> bytes:
    codec = response(ApiKey.DESCRIBE_CLUSTER)
    return codec.encode(codec.cls(cluster_id=cluster_id), VERSION)


def sized(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def sound(number: bytes) -> bytes:
    return sized(number + b"\0" + body())


def tagged(number: bytes) -> bytes:
    return sized(number + b"\1\7\2ab" + body())


@asynccontextmanager
async def peer(answer: Answer) -> AsyncIterator[int]:
    """A peer that answers so; the end of each connection is waited for."""
    over: list[asyncio.Event] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = asyncio.Event()
        over.append(mine)
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                writer.write(answer(frame[4:8]))
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        mine.set()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server, asyncio.timeout(PATIENCE_S):
        yield server.sockets[0].getsockname()[1]
        for one in over:
            await one.wait()


class Addresses(InlinePool):
    """Looks every name up itself."""

    def __init__(self, *found: str) -> None:
        super().__init__()
        self.found = found

    async def run(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return [(0, 0, 0, "", (one, args[1])) for one in self.found]


async def ask(port: int, *, times: int = 1, at: tuple[str, ...] = ("127.0.0.1",)) -> list[str]:
    question = request(ApiKey.DESCRIBE_CLUSTER).cls(endpoint_type=2)
    async with (
        asyncio.timeout(PATIENCE_S),
        Conversation(("name", port), b"client", Addresses(*at)) as talk,
    ):
        answers = [await talk.ask(ApiKey.DESCRIBE_CLUSTER, VERSION, question) for _ in range(times)]
    return [one.cluster_id for one in answers]


@pytest.mark.parametrize("answer", [sound, tagged])
async def test_each_question_has_its_answer(answer: Answer) -> None:
    async with peer(answer) as port:  # which sees the connection end with the block
        assert await ask(port, times=3) == ["ours"] * 3


def of_another(number: bytes) -> bytes:
    return sound(bytes(3) + bytes([number[3] ^ 1]))


def huge(number: bytes) -> bytes:
    return struct.pack(">i", 2**31 - 1) + number


def tiny(number: bytes) -> bytes:
    return sized(number[:3]) + bytes(100)


def cut(number: bytes) -> bytes:
    return sized(sound(number)[4:-3])


def nothing(number: bytes) -> bytes:
    return sized(number)


def half_a_header(number: bytes) -> bytes:
    return sized(number + b"\1\7\x80")


@pytest.mark.parametrize("answer", [of_another, huge, tiny, cut, nothing, half_a_header])
async def test_what_is_no_answer_to_the_question_is_none(answer: Answer) -> None:
    async with peer(answer) as port:
        with pytest.raises(NO_ANSWER):
            await ask(port)


def twice(number: bytes) -> bytes:
    return sound(number) * 2


async def test_a_second_answer_is_not_that_to_the_next_question() -> None:
    async with peer(twice) as port:
        assert await ask(port) == ["ours"]
        with pytest.raises(NO_ANSWER):
            await ask(port, times=2)


async def test_of_a_names_addresses_each_is_tried() -> None:
    """`localhost` is two addresses, and a listener may have one of them."""
    async with peer(sound) as port:
        assert await ask(port, at=("127.0.0.2", "127.0.0.1")) == ["ours"]
        with pytest.raises(OSError, match=r"127\.0\.0\.3"):
            await ask(port, at=("127.0.0.2", "127.0.0.3"))
        with pytest.raises(OSError, match="no address"):
            await ask(port, at=())
