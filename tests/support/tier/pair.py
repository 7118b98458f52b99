"""A tier and a broker on a fake link, on one manual clock."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlm.config import TierConfig
from rlm.deletions import Deletions
from rlm.link.endpoint import Endpoint, FakeLink, Received
from rlm.link.messages import (
    Assign,
    Configure,
    Configured,
    DescribeMetrics,
    Health,
    MetricsPiece,
    PartitionSettings,
    Read,
    ReadAnswer,
)
from rlm.plugins import Plugins
from rlm.read.read_path import ReadPath
from rlm.service import Link, Tier, TierReceiver
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rlmm.topic_based.remover import Remover
from rsm_plugins.api import RetriableRemoteStorageError
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.testing import FaultyStorage, Operation
from runtime.disk import Disk
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.sim.rng import SeededRng
from tests.support.tier.log_in_memory import PARTITION, InlineWorkers, SimulatedBroker

NAMES = (PARTITION.topic_id, PARTITION.partition)


class ClaimStorage(FaultyStorage):
    """Keeps claims, and fails to while `claim_error` is set; `put` is called before each PUT."""

    claim_error: Exception | None = None
    put: Callable[[int], None] = staticmethod(lambda _: None)

    def __init__(self, inner: LocalFsRemoteStorageManager) -> None:
        super().__init__(inner)
        self._keeper = inner
        self.claims: list[tuple[str, int | None]] = []

    def read_claim(self, cluster_id: str, node_id: int) -> int | None:
        self._fail_claim()
        found = self._keeper.read_claim(cluster_id, node_id)
        self.claims.append(("read", found))
        return found

    def write_claim(self, cluster_id: str, node_id: int, number: int) -> None:
        self._fail_claim()
        self.put(number)
        self._keeper.write_claim(cluster_id, node_id, number)
        self.claims.append(("write", number))

    def delete_claim(self, cluster_id: str, node_id: int) -> None:
        self._keeper.delete_claim(cluster_id, node_id)

    def _fail_claim(self) -> None:
        if self.claim_error is not None or self.down:
            raise self.claim_error or RetriableRemoteStorageError("the store is down")


class Pair:
    """Both ends: the broker's endpoint asks, the tier's service answers."""

    def __init__(
        self,
        root: Path,
        *,
        disk: Disk | None = None,
        store: Path | None = None,
        kind: type[FaultyStorage] = FaultyStorage,
        wall_ms: int = 10_000_000,
        log: SimulatedBroker | None = None,
        seed: int = 2,
        remover: Remover | None = None,
        **settings: Any,
    ) -> None:
        self.root, self.store = root, store or root / "store"
        root.mkdir(exist_ok=True)
        ports = simulated(seed, clock=ManualClock(wall_ms=wall_ms), disk=disk)
        self.clock, self.scheduler = ports.clock, ports.scheduler
        self.workers = InlineWorkers()
        self.workers.on_pause = self.clock.advance
        self.log = log or SimulatedBroker()
        inner = LocalFsRemoteStorageManager()
        inner.configure({"dir": str(self.store)})
        self.storage = kind(inner)
        self.metadata = InMemoryRemoteLogMetadataManager(self.clock, SeededRng(1))
        self.told: list[Health] = []
        self.aborted: list[str] = []
        self.ended = False
        self.questions = 0
        self.connect_error: Exception | None = None  # of the metadata manager
        self.remover = remover
        self.removal_reason: tuple[str, ...] = ()
        self.receiver = TierReceiver(
            self._plugins,
            lambda threads: self.workers,
            ports,
            Link(
                broker=self.log,
                tell=self.told.append,
                abort=self.aborted.append,
                ended=self._end,
            ),
        )
        self.config = replace(
            TierConfig(
                node_id=1,
                cluster_id="c",
                state_dir=str(root),
                cache_dir=str(root),
                storage_class="x:Y",
                chunk_bytes=400,
                chunk_cache_bytes=1 << 20,
            ),
            **settings,
        )
        self.broker = Endpoint(lambda received, reply: None, lambda: None)
        tier = Endpoint(self.receiver, lambda: None)
        self.link = FakeLink(self.broker, tier)
        self.configure()

    def configure(self) -> None:
        assert isinstance(self.ask(Configure(self.config)).message, Configured)

    @property
    def tier(self) -> Tier:
        assert self.receiver.tier is not None
        return self.receiver.tier

    @property
    def reads(self) -> ReadPath:
        return self.tier.reads

    def _plugins(self, config: TierConfig, calls: object) -> Plugins:
        return Plugins(
            self.storage,
            self.metadata,
            Deletions(self.storage, self.clock, config.delete_failing_ms, config.copy_max_ms),
            connect=self._connect,
            remover=self.remover,
            unhealthy=lambda: self.removal_reason,
        )

    def _connect(self, client_settings: Mapping[str, str]) -> None:
        if self.connect_error is not None:
            raise self.connect_error

    def _end(self) -> None:
        self.ended = True

    def pump(self) -> None:
        while self.link.pump() or self.workers.turn():
            pass

    def ask(self, message: object, wait_ms: int = 0) -> Received:
        return self._answer(self.broker.ask(message), wait_ms)  # type: ignore[arg-type]

    def _answer(self, future: "Future[Received]", wait_ms: int) -> Received:
        self.pump()
        for _ in range(wait_ms // 5 if not future.done() else 0):
            self.scheduler.advance(5)
            self.pump()
            if future.done():
                break
        return future.result(0)

    def reasons(self) -> list[str]:
        """Why health is `red`, a second later."""
        self.scheduler.advance(1_000)
        self.pump()
        health = next(each for each in reversed(self.told) if isinstance(each, Health))
        return [each.reason for each in health.unhealthy]

    def metrics_page(self, number: int = 1) -> str:
        """The tier's metrics as they cross the link."""
        pieces = list[bytes]()
        while True:
            piece = self.ask(DescribeMetrics(number)).message
            assert isinstance(piece, MetricsPiece)
            if piece.is_last:
                return b"".join(pieces).decode()
            pieces.append(piece.content)

    def assign(self, **changes: object) -> None:
        assign = Assign(
            *NAMES,
            self.log.leader_epoch,
            topic="orders",
            is_leader=True,
            settings=PartitionSettings(),
        )
        from msgspec.structs import replace as with_changes

        self.ask(with_changes(assign, **changes))

    def ask_to_read(
        self,
        offset: int,
        max_bytes: int = 10_000,
        wait_ms: int = 500,
        holder: str = "",
        **more: int,
    ) -> "Future[Received]":
        """Ask; each question is of a connection of its own unless `holder` names one."""
        self.questions += 1
        question = Read(
            *NAMES,
            self.log.leader_epoch,
            offset=offset,
            offset_epoch=more.get("epoch", 1),
            epoch_end=more.get("epoch_end", self.log.end),
            max_bytes=max_bytes,
            min_one_batch=True,
            read_committed=False,
            wait_ms=wait_ms,
            holder=holder or f"reader {self.questions}",
            read_ahead_bytes=more.get("read_ahead_bytes", 0),
            at_follower=bool(more.get("at_follower", 0)),
        )
        return self.broker.ask(question)

    def read(
        self,
        offset: int,
        max_bytes: int = 10_000,
        wait_ms: int = 500,
        holder: str = "",
        **more: int,
    ) -> Received:
        """See `ask_to_read`; time passes until it is answered."""
        asked = self.ask_to_read(offset, max_bytes, wait_ms, holder, **more)
        return self._answer(asked, wait_ms + 50)

    def calls(self, operation: Operation) -> int:
        return sum(1 for call in self.storage.calls if call.operation is operation)


def bytes_of(received: Received) -> bytes:
    answer = received.message
    assert isinstance(answer, ReadAnswer)
    disk = Disk()
    return b"".join(
        disk.read_at(file, region.position, region.size_bytes)
        for file, region in zip(received.files, answer.regions, strict=True)
    )


def error_of(received: Received) -> int:
    answer = received.message
    assert isinstance(answer, ReadAnswer)
    return answer.error


def tokens_of(received: Received) -> list[int]:
    answer = received.message
    assert isinstance(answer, ReadAnswer)
    return [region.token for region in answer.regions]
