"""All clients of the soak, in one process beside the broker.

    python -m benchmarks.soak_parts.load BOOTSTRAP PID SEED [--plant-connections]

It makes the topics, then prints a line of JSON every five seconds until its input ends. While the
clients end, it prints a line every second. The last line has the broken promises.
"""

import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

from benchmarks.soak_parts import bad, good
from benchmarks.soak_parts.lanes import CLIENTS, Lanes
from benchmarks.soak_parts.line import Soaked, Tally
from benchmarks.soak_parts.records import LANES, topic_fields
from benchmarks.stall_probe import RunnableTime
from kafka_protocol.wire.api_keys import ApiKey

REPORT_S = 5
ENDING_REPORT_S = 1
LEAVE_S = 20
"""So long after the word to end the last client has closed its connection."""
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
    await asyncio.sleep(client.rng.random() * 3)
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
    """The planted leak: connections that are used now and then, so that they are never closed."""

    async def used() -> None:
        with await client.line() as line:
            while True:
                await line.ask(ApiKey.API_VERSIONS, 0)
                await asyncio.sleep(10)

    async with asyncio.TaskGroup() as opened:
        while True:
            opened.create_task(used())
            await asyncio.sleep(1 / PLANTED_PER_S)


def report(tally: Tally, **more: object) -> None:
    shown = {}
    for kind, kept in list(tally.latencies_ms.items()):
        found = kept[:]  # the lanes' thread may add to it at any moment
        del kept[: len(found)]
        if found:
            found.sort()
            p99 = found[int(len(found) * 0.99)]
            shown[kind] = {"p50": statistics.median(found), "p99": p99}
    print(json.dumps({"counts": tally.counts, "latencies_ms": shown, **more}), flush=True)


async def make_topics(client: Soaked) -> None:
    with await client.line() as line:
        for name, (partitions, configs) in TOPICS.items():
            told = await line.ask(
                ApiKey.CREATE_TOPICS, 5, **topic_fields(name, partitions, configs)
            )
            assert not told.topics[0].error_code, told


async def run(bootstrap: str, pid: int, seed: int, *, planted: bool) -> None:
    tally = Tally()
    broker = RunnableTime(f"/proc/{pid}/schedstat")
    own = RunnableTime(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    def runnable_ms() -> float:
        return broker.read() + own.read()

    clients = [
        (life, Soaked(bootstrap, Random(f"{seed} {life.__name__} {n}"), tally, n, runnable_ms))
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
    await until_input_ends(lambda: report(tally))
    await leave(tasks, tally)
    stopped = asyncio.ensure_future(asyncio.to_thread(lanes.stop))
    while not stopped.done():
        await asyncio.wait({stopped}, timeout=ENDING_REPORT_S)
        report(tally, ending=lanes.progress())
    report(tally, wrong=tally.wrong)


async def until_input_ends(each_time: Callable[[], None]) -> None:
    """Report now and then until the parent process closes the pipe that is our input.

    No thread reads the pipe, because it would keep a process alive whose clients have failed.
    """
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    while not ended.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(REPORT_S):
                await ended.wait()
        each_time()
    loop.remove_reader(sys.stdin.fileno())


async def leave(tasks: list[asyncio.Task[None]], tally: Tally) -> None:
    """End all clients of plain frames; a client that does not end is a complaint."""
    for task in tasks:
        task.cancel()
    began, staying = time.monotonic(), set(tasks)
    while staying and time.monotonic() - began < LEAVE_S:
        _, staying = await asyncio.wait(staying, timeout=ENDING_REPORT_S)
        report(tally, ending=f"{len(staying)} of {len(tasks)} clients are leaving")
    if staying:
        tally.complain(f"{len(staying)} clients do not leave: {next(iter(staying))}")


def main() -> None:
    planted = "--plant-connections" in sys.argv
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), planted=planted))


if __name__ == "__main__":
    main()
