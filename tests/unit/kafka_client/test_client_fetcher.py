"""A fetcher of 10 MB answers: bounded memory while it is behind, and an event loop that is free."""

import asyncio
import struct
from typing import Any

from kafka_client.connection import Connection
from kafka_client.exchange import AT_ONCE_BYTES, ConnectionSettings, Exchange
from kafka_client.requests import Answer
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from runtime.ports import system_ports
from tests.support.kafka_client.node import framed, serving
from tests.support.worlds.waiting import PATIENCE_S, until

RECORDS_BYTES = 10 << 20
FETCHES = 8
VERSION = 12


def fetched(_: int, version: int, number: int) -> bytes:
    codec = response(ApiKey.FETCH)
    part = codec.cls.Responses.Partitions(records=bytes([number]) * RECORDS_BYTES)
    body = codec.encode(codec.cls(responses=[codec.cls.Responses(partitions=[part])]), version)
    return framed(struct.pack(">i", number) + b"\0" + body)


class Counted(Exchange):
    """Notes what each iteration of the loop receives."""

    most, turns = 0, 0

    def received(self, count: int) -> Any:
        cls = type(self)
        cls.most, cls.turns = max(cls.most, count), cls.turns + 1
        return super().received(count)


async def test_a_fetcher_that_is_behind_stops_the_reading_and_never_the_loop(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("kafka_client.connection.Exchange", Counted)
    ports = system_ports(asyncio.get_running_loop())
    settings = ConnectionSettings(client_id="f", held_bytes_max=25 << 20)
    async with asyncio.timeout(PATIENCE_S), serving(fetched, {ApiKey.FETCH: (12, 12)}) as node:
        connection = Connection(node.address, settings, ports)
        question = request(ApiKey.FETCH).cls()
        waiting = [
            asyncio.create_task(
                connection.request(ApiKey.FETCH, question, read=None, timeout_ms=60_000)
            )
            for _ in range(FETCHES)
        ]
        held: list[Answer] = []
        most_held = 0
        for number, answer in enumerate(waiting, 1):
            # Two fit; the third is announced, and stays in the socket until one is released.
            await until(answer.done)
            held.append(await answer)
            if len(held) < 2:
                continue
            turns = Counted.turns
            for _ in range(50):
                await asyncio.sleep(0)
                most_held = max(most_held, connection.held_bytes)
            assert Counted.turns - turns <= 2, "bytes are read for a fetcher that is behind"
            oldest = held.pop(0)
            body = await ports.executors.reads.run(oldest.decode)
            (part,) = body.responses[0].partitions
            assert part.records[:1] == part.records[-1:] == bytes([number - 1])
            assert part.records.obj is oldest.frame.obj, "the records were copied"  # type: ignore[union-attr]
            oldest.release()
        assert most_held <= settings.held_bytes_max
        assert Counted.most <= AT_ONCE_BYTES
        assert node.connections == 1
        connection.close()
    ports.executors.shutdown()
    await asyncio.sleep(0)
