"""Parts `large`, `middle` and `small`: cost and latency of a produce with three copies.

Requests are made beforehand and sent over plain sockets: the nodes are the bottleneck.
"""

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.controllers_costs import Costs
from benchmarks.replication_nodes import Nodes, running, touch_pages
from benchmarks.stall_probe import Client, produce_frame
from kafka_protocol.records.batch import HEADER_SIZE
from kafka_protocol.records.records import build_batch
from tests.support.quorum.controllers import Controller
from tests.support.quorum.quorum import until_asked

CONNECTIONS: Final = 4
"""To each leader. Kafka serves one request of a connection at a time."""
IN_FLIGHT: Final = 5
"""Of each connection, as a producer's default."""
RECORD_BYTES: Final = 1_000
RECORD_HEAD_BYTES: Final = 10
ALL: Final = -1
TOPIC: Final = "three"
_ERROR_AT: Final = 4 + 1 + 1 + 1 + len(TOPIC) + 1 + 4
"""In an answer of Produce 9 to a request of one partition."""


async def flood(
    kind: type[Controller], directory: Path, request_bytes: int, megabytes: int
) -> dict[str, float]:
    """Figures of one kind; as many bytes before that, to get warm."""
    async with running(kind, directory) as nodes:
        clients = await _prepared(nodes, CONNECTIONS)
        batch = _batch((request_bytes - HEADER_SIZE) // (RECORD_BYTES + RECORD_HEAD_BYTES))
        count = megabytes * 1_000_000 // (len(batch) * len(clients))
        frames = [produce_frame({(TOPIC, one): batch}, ALL) for one in range(len(clients))]
        works = [
            lambda client=client, frame=frame: _flood(client, frame, count)
            for client, frame in zip(clients, frames, strict=True)
        ]
        for _ in range(2):  # the first one warms up
            await asyncio.to_thread(touch_pages, 3 * megabytes)
            costs = Costs(nodes.quorum)
            await asyncio.to_thread(_side_by_side, works)
            cpu_s, took_s = costs.cpu_s, costs.seconds
        requests = count * len(clients)
        gb = requests * len(batch) / 1e9
        row = f"{request_bytes >> 10} KiB: "
        return {
            f"{row}MB/s": gb * 1_000 / took_s,
            f"{row}CPU s a GB, all three": cpu_s / gb,
            f"{row}CPU us a request, all three": cpu_s / requests * 1e6,
        }


async def small(kind: type[Controller], directory: Path, count: int) -> dict[str, float]:
    """Waits for one record of 100 bytes at a time, with nothing else continuing."""
    async with running(kind, directory) as nodes:
        clients = await _prepared(nodes, 1)
        batch = build_batch([(int(time.time() * 1_000), None, b"x" * 100, [])])
        waits: list[float] = []
        costs = None
        for number in (count // 4, count):
            waits, costs = [], Costs(nodes.quorum)
            for index, client in enumerate(clients):
                frame = produce_frame({(TOPIC, index): batch}, ALL)
                waits += await asyncio.to_thread(_one_by_one, client, frame, number)
        assert costs is not None
        cuts = statistics.quantiles(waits, n=1_000)
        return {
            "100 bytes, one at a time: p50 ms": cuts[499] * 1_000,
            "100 bytes, one at a time: p99 ms": cuts[989] * 1_000,
            "100 bytes, one at a time: CPU us, all three": costs.cpu_s / len(waits) * 1e6,
        }


async def _prepared(nodes: Nodes, of_each: int) -> list[Client]:
    """Connections to leaders, that of partition `n` at place `n`."""
    ids = list(nodes.addresses)
    turns = [ids[turn:] + ids[:turn] for turn in range(len(ids))] * of_each
    await nodes.create([TOPIC], turns)
    clients = [Client(nodes.addresses[first]) for first, *_ in turns]
    for index, client in enumerate(clients):  # the metadata name a leader before it leads
        frame = produce_frame({(TOPIC, index): _batch(1)}, ALL)
        await until_asked(
            lambda client=client, frame=frame: not _error(client.exchange(frame)),  # type: ignore[misc]
            "all partitions are led",
            deadline_s=60,
        )
    return clients


def _batch(records: int) -> bytearray:
    now_ms, value = int(time.time() * 1_000), bytes(range(250)) * (RECORD_BYTES // 250)
    return build_batch([(now_ms, None, value, [])] * records)


def _flood(client: Client, frame: bytes, count: int) -> None:
    for number in range(count + IN_FLIGHT):
        if number >= IN_FLIGHT:
            _check(client.receive())
        if number < count:
            client.send(frame)


def _one_by_one(client: Client, frame: bytes, count: int) -> list[float]:
    waits = []
    for _ in range(count):
        began = time.perf_counter()
        answer = client.exchange(frame)
        waits.append(time.perf_counter() - began)
        _check(answer)
    return waits


def _error(answer: bytes) -> int:
    return int.from_bytes(answer[_ERROR_AT : _ERROR_AT + 2], "big")


def _check(answer: bytes) -> None:
    assert not _error(answer), f"produce answers error {_error(answer)}"


def _side_by_side(works: Sequence[Callable[[], None]]) -> None:
    """All at once, each on a thread of its own; fails as the first that failed."""
    failed: list[Exception] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in works]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if failed:
        raise failed[0]
