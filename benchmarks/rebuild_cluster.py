"""One controller and three brokers of one kind, whose remote tiers share a directory."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

from benchmarks.replication_nodes import Nodes, alive, are_in_sync
from benchmarks.stall_probe import Client, produce_frame
from kafka_protocol.records.records import build_batch
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kafka_controllers import KafkaBroker
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, until_asked
from tests.support.quorum.tiering import STORE, SWITCH, TieringBroker

IDS: Final = (11, 12, 13)
VICTIM: Final = 13
ALL: Final = -1
METADATA_TOPIC: Final = "__remote_log_metadata"
FENCED_S: Final = 60.0
EVERY_S: Final = 0.01
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
    "rlmm.config.remote.log.metadata.topic.min.isr": "2",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "50",
    "remote.log.manager.task.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "tidemark.remote.copy.max.ms": "3600000",
}
"""The defaults of both, but copying and local retention look each second."""
KAFKA_SWITCH: Final = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": (
        "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
    ),
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
}


class KafkaTieringBroker(KafkaBroker):
    """A broker with Kafka's LocalTieredStorage, in the same directory as the others' one."""

    heap = "1g"

    def properties(self) -> dict[str, str]:
        own = {
            "rsm.config.dir": str(self.directory.parent / STORE),
            # LocalTieredStorage keeps what it has when one of its brokers ends.
            "rsm.config.delete.on.close": "false",
            "log.index.size.max.bytes": "65536",
        }
        return super().properties() | KAFKA_SWITCH | own | self.settings


@dataclass(frozen=True)
class Three:
    """Brokers that run.

    Attributes:
        brokers: By node id.
        store: The directory that all their tiers have.
    """

    nodes: Nodes
    brokers: dict[int, Any]
    store: Path

    @property
    def victim(self) -> Any:
        """The broker that is lost."""
        return self.brokers[VICTIM]

    @property
    def others(self) -> list[Any]:
        return [one for node_id, one in self.brokers.items() if node_id != VICTIM]

    def fenced_at(self) -> float:
        """Return when another broker no longer takes the victim for alive (monotonic)."""
        deadline = time.monotonic() + FENCED_S
        while VICTIM in alive(self.others[0].address):
            assert time.monotonic() < deadline, f"not fenced after {FENCED_S} s"
            time.sleep(0.02)
        return time.monotonic()

    async def until_in_sync(self, names: Sequence[str], deadline_s: float) -> float:
        """Return when they are (monotonic)."""
        what = f"{', '.join(names)} are in sync"
        await until_asked(
            lambda: are_in_sync(self.others[0].address, names), what, deadline_s=deadline_s
        )
        return time.monotonic()


@asynccontextmanager
async def three(kind: type[Controller], directory: Path) -> AsyncIterator[Three]:
    """Start them; none is left running."""
    is_ours = issubclass(kind, TidemarkController)
    switch = SWITCH if is_ours else KAFKA_SWITCH
    plan = Plan(kind, is_dynamic=False, count=1, has_links=False, settings=switch)
    made: type[TieringBroker | KafkaTieringBroker] = (
        TieringBroker if is_ours else KafkaTieringBroker
    )
    settings = {k: v for k, v in SETTINGS.items() if is_ours or not k.startswith("tidemark.")}
    async with Quorum(directory, plan) as quorum:
        brokers = {
            one: made(one, directory / f"broker-{one}", quorum.membership, settings) for one in IDS
        }
        try:
            if is_ours:
                await brokers[IDS[0]].format("--cluster-secret")
            await asyncio.gather(*(one.start() for one in brokers.values()))
            nodes = Nodes(quorum, {one: broker.address for one, broker in brokers.items()})
            await nodes.until_all_serve()
            yield Three(nodes, brokers, directory / STORE)
        except BaseException:
            for one in brokers.values():
                print(f"--- broker {one.node_id}\n{one.log_tail(15)}")
            raise
        finally:
            for one in brokers.values():
                one.close()


def batch_of(values: Sequence[bytes], timestamp_ms: int | None = None) -> bytes:
    """One record batch; its records have this time, or that of now."""
    now_ms = int(time.time() * 1_000) if timestamp_ms is None else timestamp_ms
    return bytes(build_batch([(now_ms, None, value, []) for value in values]))


def refused(answer: bytes) -> dict[tuple[str, int], int]:
    """Error codes of the partitions of a Produce answer that did not take their batch."""
    decoded = codec.response(ApiKey.PRODUCE).decode(answer, 9, 5)[0]
    return {
        (topic.name, one.index): one.error_code
        for topic in decoded.responses
        for one in topic.partition_responses
        if one.error_code
    }


class Beside:
    """Writes 100 records a second in turn to the partitions of a topic, acks=all.

    It runs in a separate process, so that its times do not include waits for this interpreter.
    """

    def __init__(self, topic: str, addresses: Sequence[str]) -> None:
        """Write to partition 0 of `topic` at the first address, to 1 at the second, ..."""
        processes = get_context("spawn")
        self._is_over = processes.Event()
        self._answer, answer = processes.Pipe(duplex=False)
        arguments = topic, addresses, self._is_over, answer
        self._process = processes.Process(target=_write_in_turn, args=arguments, daemon=True)
        self._process.start()

    def stop(self) -> list[tuple[float, float]]:
        """When each record was sent (monotonic), and seconds until it was acknowledged."""
        self._is_over.set()
        waits = self._answer.recv()
        self._process.join()
        return waits


def p99_ms(waits: Sequence[tuple[float, float]], began: float, ended: float) -> float:
    """Of the records that were sent in between."""
    between = sorted(wait for sent, wait in waits if began <= sent < ended)
    return between[len(between) * 99 // 100] * 1_000 if between else float("nan")


def _write_in_turn(
    topic: str, addresses: Sequence[str], is_over: Event, answer: Connection
) -> None:
    clients, waits = [Client(one) for one in addresses], list[tuple[float, float]]()
    due, turn = time.monotonic(), 0
    while not is_over.wait(max(0.0, due - time.monotonic())):
        partition = turn % len(clients)
        frame = produce_frame({(topic, partition): batch_of([b"x" * 100])}, ALL)
        sent = time.monotonic()
        assert not refused(clients[partition].exchange(frame))
        waits.append((sent, time.monotonic() - sent))
        due, turn = max(due + EVERY_S, sent), turn + 1
    for client in clients:
        client.close()
    answer.send(waits)
