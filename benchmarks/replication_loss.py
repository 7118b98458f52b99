"""Parts `loss` and `elected`: how long partitions have no leader when its node ends."""

import asyncio
import statistics
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.controllers_costs import Costs, idle_again
from benchmarks.replication_nodes import Nodes, alive, metadata, running
from benchmarks.stall_probe import Client, produce_frame
from kafka_protocol.records.records import build_batch
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.quorum.controllers import Controller

PARTITIONS_A_TOPIC: Final = 100
LATEST: Final = -1
ALL: Final = -1
_AGAIN_S: Final = 0.005
_AFTER_S: Final = 1.0
_LOST_S: Final = 120.0
_MADE_S: Final = 300.0


async def loss(
    kind: type[Controller], directory: Path, *, kills: int, stops: int
) -> dict[str, float]:
    """Longest time without an acknowledgement, around rounds of kill -9 and then of SIGTERM."""
    async with running(kind, directory) as nodes:
        killed = [await _without(nodes, f"killed-{one}", is_graceful=False) for one in range(kills)]
        stopped = [
            await _without(nodes, f"stopped-{one}", is_graceful=True) for one in range(stops)
        ]
    found = {}
    for what, rounds in (("kill -9", killed), ("SIGTERM", stopped)):
        gaps = [gap for gap, _ in rounds]
        found |= {
            f"without a leader, {what}: rounds": len(rounds),
            f"without a leader, {what}: median s": statistics.median(gaps),
            f"without a leader, {what}: longest s": max(gaps),
        }
    after = [acknowledged for _, acknowledged in killed]
    return found | {
        "from fencing to the first acknowledgement: median s": statistics.median(after),
        "from fencing to the first acknowledgement: longest s": max(after),
    }


async def _without(nodes: Nodes, topic: str, *, is_graceful: bool) -> tuple[float, float]:
    """Lose a leader; the longest gap, and seconds from its fencing to the next acknowledgement."""
    victim, *_ = await nodes.others_than_the_controller()
    others = [one for one in nodes.addresses if one != victim]
    await nodes.create([topic], [[victim, *others]])
    node = nodes.quorum.controllers[victim]
    writer = Writer(nodes, topic, others)
    await asyncio.to_thread(writer.until_acknowledged, time.monotonic())
    began = time.monotonic()
    if is_graceful:
        await node.stop()
        fenced = time.monotonic()
    else:
        node.kill()
        fenced = await asyncio.to_thread(_fenced_at, nodes.addresses[others[0]], victim)
    await asyncio.to_thread(writer.until_acknowledged, max(began, fenced - _AFTER_S) + _AFTER_S)
    await asyncio.sleep(_AFTER_S)
    acknowledged = writer.stop()
    await node.start()
    await nodes.until_all_serve()
    gaps = [after - before for before, after in pairwise(acknowledged)]
    return max(gaps), max(0.0, min(one for one in acknowledged if one > began) - fenced)


def _fenced_at(address: str, victim: int) -> float:
    while victim in alive(address):
        time.sleep(_AGAIN_S)
    return time.monotonic()


class Writer:
    """Writes one record after the other to the leader of partition 0, acks=all, on a thread."""

    def __init__(self, nodes: Nodes, topic: str, asked: Sequence[int]) -> None:
        self._addresses, self._topic, self._asked = nodes.addresses, topic, asked
        batch = build_batch([(int(time.time() * 1_000), None, b"x" * 100, [])])
        self._frame = produce_frame({(topic, 0): batch}, ALL)
        self._acknowledged: list[float] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def until_acknowledged(self, since: float) -> None:
        """Return when something was acknowledged later than that (monotonic)."""
        deadline = time.monotonic() + _LOST_S
        while not self._acknowledged or self._acknowledged[-1] <= since:
            assert time.monotonic() < deadline, f"nothing acknowledged for {_LOST_S} s"
            time.sleep(_AGAIN_S)

    def stop(self) -> list[float]:
        """When something was acknowledged."""
        self._is_over = True
        self._thread.join()
        return self._acknowledged

    def _run(self) -> None:
        while not self._is_over:
            try:
                self._write()
            except OSError:
                time.sleep(_AGAIN_S)

    def _write(self) -> None:
        """Until the leader is another one."""
        for one in self._asked:
            leader = metadata(self._addresses[one], [self._topic]).topics[0].partitions[0].leader_id
            if leader in self._addresses:
                with Client(self._addresses[leader]) as client:
                    while not self._is_over and _is_acknowledged(client.exchange(self._frame)):
                        self._acknowledged.append(time.monotonic())
            time.sleep(_AGAIN_S)


def _is_acknowledged(answer: bytes) -> bool:
    decoded = codec.response(ApiKey.PRODUCE).decode(answer, 9, 5)[0]
    return not decoded.responses[0].partition_responses[0].error_code


async def elected(kind: type[Controller], directory: Path, partitions: int) -> dict[str, float]:
    """Kill the leader of all partitions, and ask the others until each of them is led."""
    names = [f"wide-{number}" for number in range(partitions // PARTITIONS_A_TOPIC)]
    async with running(kind, directory) as nodes:
        victim, *_ = await nodes.others_than_the_controller()
        one, other = (node_id for node_id in nodes.addresses if node_id != victim)
        turns = [[victim, one, other], [victim, other, one]] * (PARTITIONS_A_TOPIC // 2)
        began = time.monotonic()
        await nodes.create(names, turns)
        await asyncio.to_thread(_until_led, [nodes.addresses[victim]], names)
        created = time.monotonic()
        for node in nodes.quorum.controllers.values():  # no answer shows that a replica exists
            await idle_again(node, deadline_s=_MADE_S)
        costs = Costs(nodes.quorum)
        await asyncio.sleep(10)
        at_rest = costs.cpu_s / costs.seconds
        nodes.quorum.controllers[victim].kill()
        killed = time.monotonic()
        fenced = await asyncio.to_thread(_fenced_at, nodes.addresses[one], victim)
        costs = Costs(nodes.quorum)
        asked = [nodes.addresses[one], nodes.addresses[other]]
        await asyncio.to_thread(_until_led, asked, names)
        led = time.monotonic()
        return {
            f"{partitions} partitions created and led, s": created - began,
            f"{partitions} partitions at rest: cores, all three": at_rest,
            f"{partitions} partitions: killed to fenced, s": fenced - killed,
            f"{partitions} partitions: fenced to the last one led, s": led - fenced,
            f"{partitions} partitions: CPU s of the two meanwhile": costs.cpu_s,
        }


def _until_led(addresses: Sequence[str], names: Sequence[str]) -> None:
    """Wait until each partition has a leader that answers with its end.

    Only a leader that knows the committed records answers.
    """
    deadline = time.monotonic() + _LOST_S
    clients = [Client(one) for one in addresses]
    for name in names:  # one after the other: to ask for all of them is work, too
        left = set(range(PARTITIONS_A_TOPIC))
        while left:
            assert time.monotonic() < deadline, f"{name} is not led after {_LOST_S} s"
            for client in clients:
                left -= _led(client, name, left)
            time.sleep(_AGAIN_S)
    for client in clients:
        client.close()


def _led(client: Client, name: str, asked: set[int]) -> set[int]:
    cls = codec.request(ApiKey.LIST_OFFSETS).cls
    parts = [cls.Topics.Partitions(partition_index=one, timestamp=LATEST) for one in asked]
    body = cls(replica_id=-1, topics=[cls.Topics(name=name, partitions=parts)])
    answer = client.ask(ApiKey.LIST_OFFSETS, 7, body)
    return {
        one.partition_index
        for topic in answer.topics
        for one in topic.partitions
        if not one.error_code
    }
