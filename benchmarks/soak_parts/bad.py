"""Clients that no broker wants: slow, silent, flooding, sending nonsense.

Each is a coroutine for the time of one connection; it is called again until the end. Its errors are
its own fault, so only the death of the broker counts as wrong.
"""

import asyncio
import os

from benchmarks.soak_parts.line import Line, Soaked, request
from benchmarks.soak_parts.records import batch, fetch_fields, produce_fields
from kafka_protocol.wire.api_keys import ApiKey

FLOOD_BYTES = 512 << 10
DRIP_BYTES = 400


async def slow_reader(client: Soaked) -> None:
    """Asks for much, takes little or nothing, and goes."""
    topic = client.rng.choice(("lanes", "small"))
    asked = [
        request(ApiKey.FETCH, 11, **fetch_fields(topic, n % 2, 0, part_bytes=1 << 18))
        for n in range(20)
    ]
    with await client.line(receive_bytes=4_096) as line:
        await line.send(b"".join(asked))
        takes_nothing = client.number % 2
        for _ in range(40):
            await client.pause(1)
            if not takes_nothing and not await line.receive(2_048):
                return


async def slow_writer(client: Soaked) -> None:
    """A whole produce request in drips: slow is no crime, so it is answered."""
    data = request(ApiKey.PRODUCE, 9, **produce_fields("small", 0, batch(os.urandom(2_000))))
    with await client.line() as line:
        for first in range(0, len(data), DRIP_BYTES):
            await line.send(data[first : first + DRIP_BYTES])
            await client.pause(0.5)
        await line.answer()
        client.tally.counts["slow_writer answered"] += 1


async def stalled_writer(client: Soaked) -> None:
    """Announces a large request and stops in the middle of it."""
    size = client.rng.choice((10_000, 1 << 20, 50 << 20))
    data = request(ApiKey.PRODUCE, 9, **produce_fields("small", 0, batch(os.urandom(2_000))))
    with await client.line() as line:
        await line.send(size.to_bytes(4, "big") + data[4 : 4 + client.rng.randrange(1_000)])
        await to_its_end(line)


async def silent(client: Soaked) -> None:
    """Connects and says nothing, or not even a length."""
    with await client.line() as line:
        await line.send(b"\0\0\0"[: client.number % 4])
        await to_its_end(line)


async def to_its_end(line: Line) -> None:
    while await line.receive(1 << 16, 120):
        pass


async def flooding(client: Soaked) -> None:
    """Hundreds of requests at once; all answers are taken afterwards."""
    small = [
        request(ApiKey.API_VERSIONS, 0),
        request(ApiKey.METADATA, 9, topics=None),
        request(ApiKey.PRODUCE, 9, **produce_fields("small", 1, batch(b"flood"))),
    ]
    with await client.line() as line:
        for _ in range(5):
            burst = [small[0]] * 150 + [small[1]] * 5 + [small[2]] * 60
            client.rng.shuffle(burst)
            sending = asyncio.ensure_future(line.send(b"".join(burst)))
            try:
                for _ in burst:
                    await line.answer()
                await sending
            finally:  # its socket is closed next, and the number of that may be another's then
                sending.cancel()
                await asyncio.wait({sending})
            await client.pause(4)


async def deaf_flood(client: Soaked) -> None:
    """Large requests, one after the other, and no answer is ever read."""
    large = request(
        ApiKey.PRODUCE, 9, **produce_fields("flood", 0, batch(os.urandom(FLOOD_BYTES // 2)))
    )
    fetch = request(ApiKey.FETCH, 11, **fetch_fields("flood", 0, 0, part_bytes=FLOOD_BYTES))
    with await client.line(receive_bytes=4_096) as line:
        for n in range(16):
            await line.send(fetch * 8 if n % 2 else large)
            await client.pause(0.5)
        await client.pause(10)


async def nonsense(client: Soaked) -> None:
    """Something else each time."""
    rng = client.rng
    good = request(ApiKey.PRODUCE, 9, **produce_fields("small", 0, batch(b"x" * 200)))
    flipped = bytearray(good)
    flipped[rng.randrange(4, len(flipped))] ^= 1 << rng.randrange(8)
    words = [
        os.urandom(rng.randrange(1, 300)),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        (-7).to_bytes(4, "big", signed=True) + b"abc",
        (0x7FFFFFFF).to_bytes(4, "big") + b"abc",
        b"\0\0\0\x0a" + b"\x7f\xff\0\0\0\0\0\1\xff\xff",
        good[:3] + bytes([rng.randrange(256)]) + good[4:],
        len(good[:40]).to_bytes(4, "big") + good[4:44],
        bytes(flipped),
        request(ApiKey.FETCH, 11, **fetch_fields("no-such-topic", -5, -9, part_bytes=-1)),
    ]
    with await client.line() as line:
        await line.send(rng.choice(words))
        await line.receive(1 << 12, 5)
    await client.pause(0.7)
