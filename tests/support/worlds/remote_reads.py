"""Remote reads of a broker whose tier is played by the test."""

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from broker.remote.reads import RemoteRead, RemoteReads
from broker.replica.errors import ReplicaNotAvailable
from broker.replica.validation import Validation, Verdict
from kafka_protocol.errors import KafkaError
from kafka_protocol.types import EpochEntry, TopicPartition
from local_log.config import LogConfig
from rlm.link.endpoint import LinkEndedError, Received
from rlm.link.messages import Loss, ReadAnswer, Region
from runtime.disk import Disk, OpenFile
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler

TOPIC_ID = b"T" * 16


@dataclass
class Chain:
    found: list[EpochEntry]

    def entries(self) -> list[EpochEntry]:
        return self.found


@dataclass
class Log:
    """What the broker side asks of a log."""

    log_start_offset: int = 0
    log_end_offset: int = 100
    local_log_start_offset: int = 50
    epochs: Chain = field(default_factory=lambda: Chain([EpochEntry(1, 0), EpochEntry(4, 40)]))
    config: LogConfig = field(default_factory=lambda: LogConfig(remote_storage_enable=True))

    aborted: list[int] = field(default_factory=lambda: [9])
    aborted_asked: list[tuple[int, int]] = field(default_factory=list)

    @property
    def reader(self) -> "Log":
        return self

    def aborted_transactions(self, start: int, end: int) -> list[tuple[int, int]]:
        self.aborted_asked.append((start, end))
        return [found for each in self.aborted for found in ((each, start), (each - 2, 3))]


@dataclass
class Hosted:
    """A partition of the replica manager."""

    log: Log = field(default_factory=Log)
    topic: str = "orders"
    topic_id: bytes = TOPIC_ID
    partition: int = 0
    leader_epoch: int = 4
    unclean_epoch: int = -1
    is_leader: bool = True
    is_internal: bool = False
    deleted: bool = False
    verdict: Verdict = Validation.SOUND
    refusal: KafkaError | None = None
    visible: int = 90

    def visible_end(self, *, read_committed: bool) -> int:
        return self.visible - 5 * read_committed

    def check_follower(self, offset: int, *, read_committed: bool) -> None:
        if self.refusal is not None:
            raise self.refusal

    def check_chain_known(self) -> None:
        if self.verdict is Loss.CHAIN:
            raise ReplicaNotAvailable("lost")


class Replicas:
    def __init__(self, *hosted: Hosted) -> None:
        self.partitions = {TopicPartition(each.topic, each.partition): each for each in hosted}

    def by_id(self, topic_id: bytes, partition: int) -> Hosted | None:
        for each in self.partitions.values():
            if (each.topic_id, each.partition) == (topic_id, partition):
                return each
        return None

    def get(self, topic_partition: TopicPartition) -> Hosted | None:
        return self.partitions.get(topic_partition)


class Tier:
    """Stands where the supervisor stands."""

    def __init__(self) -> None:
        self.up = True
        self.asked: list[tuple[Any, Future[Received]]] = []
        self.told: list[Any] = []

    @property
    def endpoint(self) -> object | None:
        return self if self.up else None

    def ask(self, message: Any) -> "Future[Received]":
        future: Future[Received] = Future()
        if not self.up:
            future.set_exception(LinkEndedError("down"))
        self.asked.append((message, future))
        return future

    def tell(self, message: Any) -> None:
        self.told.append(message)


class Bench:
    def __init__(self) -> None:
        self.hosted = Hosted()
        self.clock = ManualClock(monotonic_ms=1_000)
        self.scheduler = ManualScheduler(self.clock)
        self.tier = Tier()
        self.reads = RemoteReads(
            replicas=Replicas(self.hosted),  # type: ignore[arg-type]
            supervisor=self.tier,  # type: ignore[arg-type]
            clock=self.clock,
            scheduler=self.scheduler,
            loop=asyncio.get_running_loop(),
        )

    def read(
        self, offset: int = 10, read_committed: bool = False, may_ask_followers: bool = True
    ) -> "asyncio.Future[Any]":
        return self.reads.read(
            RemoteRead(
                TOPIC_ID,
                "orders",
                0,
                offset,
                1_000,
                True,
                read_committed,
                1_500,
                "one",
                may_ask_followers,
            )
        )

    def answer(self, files: tuple[OpenFile, ...] | None = None, **changes: Any) -> None:
        """The tier answers its last question; by default with one region of 7 bytes."""
        if files is None:
            disk = Disk()
            file = disk.memfd("chunk")
            disk.write_at(file, 0, b"xxbatchesyy")
            files = (file,)
        values: dict[str, Any] = {"regions": [Region(0, 77, 2, 7)], "next_offset": 15}
        answer = ReadAnswer(
            **({"topic_id": TOPIC_ID, "partition": 0, "leader_epoch": 4} | values | changes)
        )
        files = files if answer.regions else ()
        self.tier.asked[-1][1].set_result(Received(answer, files))


def code_of(future: "asyncio.Future[Any]") -> int:
    error = future.exception()
    assert isinstance(error, KafkaError)
    return int(error.code)
