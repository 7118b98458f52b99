"""All clients of the soak, in one process beside the broker.

    python -m benchmarks.soak_parts.load BOOTSTRAP SEED [--plant-connections]

Makes the topics, then prints a line of JSON each five seconds until its input ends, and then the
last one, with what was wrong.
"""

import asyncio
import json
import statistics
import sys
from collections.abc import Awaitable, Callable
from random import Random

from benchmarks.soak_parts import bad, good
from benchmarks.soak_parts.lanes import CLIENTS, Lanes
from benchmarks.soak_parts.line import Line, Soaked, Tally
from benchmarks.soak_parts.records import LANES, topic_fields
from kafka_protocol.wire.api_keys import ApiKey

REPORT_S = 5
PLANTED_PER_S = 1.0

Life = Callable[[Soaked], Awaitable[None]]
RAW_CLIENTS: dict[Life, int] = {
    good.small_producer: 14,
    good.remote_reader: 12,
    good.idle_consumer: 30,
    good.topic_maker: 6,
    good.group_goer: 10,
    good.new_producer: 6,
    bad.slow_reader: 30,
    bad.slow_writer: 12,
    bad.stalled_writer: 12,
    bad.silent: 26,
    bad.flooding: 8,
    bad.deaf_flood: 6,
    bad.nonsense: 20,
}
"""200 with those of librdkafka."""
GOOD = frozenset(life for life in RAW_CLIENTS if life.__module__ == good.__name__)

TOPICS = {
    "lanes": (
        LANES,
        {
            "remote.storage.enable": "true",
            "internal.segment.bytes": str(256 << 10),
            "local.retention.bytes": str(512 << 10),
            "retention.bytes": str(6 << 20),
        },
    ),
    "small": (2, {"internal.segment.bytes": str(1 << 20), "retention.bytes": str(4 << 20)}),
    "flood": (1, {"internal.segment.bytes": str(8 << 20), "retention.bytes": str(8 << 20)}),
    "quiet": (1, {}),
}


async def for_ever(life: Life, client: Soaked) -> None:
    name = life.__name__
    await asyncio.sleep(client.dice.random() * 3)
    while True:
        client.tally.counts[f"{name} lives"] += 1
        try:
            await life(client)
        except (OSError, TimeoutError) as error:
            client.tally.counts[f"{name} {type(error).__name__}"] += 1
            if life in GOOD:
                client.tally.complain(f"{name} {client.number}: {error!r}")
            await client.pause(0.5)
        except Exception as error:  # noqa: BLE001 - what the broker said could not be understood
            client.tally.complain(f"{name} {client.number}: {error!r}")
            await client.pause(1)


async def never_closed(client: Soaked) -> None:
    """The planted leak of connections."""
    kept: list[Line] = []
    while True:
        kept.append(await client.line())
        await kept[-1].send(b"\0")
        await asyncio.sleep(1 / PLANTED_PER_S)


def report(tally: Tally, **more: object) -> None:
    shown = {
        kind: {"p50": statistics.median(found), "p99": sorted(found)[int(len(found) * 0.99)]}
        for kind, found in tally.latencies_ms.items()
        if found
    }
    for found in tally.latencies_ms.values():
        found.clear()
    print(json.dumps({"counts": tally.counts, "latencies_ms": shown, **more}), flush=True)


async def make_topics(client: Soaked) -> None:
    with await client.line() as line:
        for name, (partitions, configs) in TOPICS.items():
            told = await line.ask(
                ApiKey.CREATE_TOPICS, 5, **topic_fields(name, partitions, configs)
            )
            assert not told.topics[0].error_code, told


async def run(bootstrap: str, seed: int, *, planted: bool) -> None:
    tally = Tally()
    clients = [
        (life, Soaked(bootstrap, Random(f"{seed} {life.__name__} {n}"), tally, n))
        for life, count in RAW_CLIENTS.items()
        for n in range(count)
    ]
    assert len(clients) + CLIENTS == 200
    await make_topics(clients[0][1])
    lanes = Lanes(bootstrap, tally)
    lanes.start()
    tasks = [asyncio.create_task(for_ever(life, client)) for life, client in clients]
    if planted:
        tasks.append(asyncio.create_task(never_closed(clients[0][1])))
    ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    while not ended.done():
        await asyncio.wait({ended}, timeout=REPORT_S)
        report(tally)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.to_thread(lanes.stop)
    report(tally, wrong=tally.wrong)


def main() -> None:
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), planted="--plant-connections" in sys.argv))


if __name__ == "__main__":
    main()
