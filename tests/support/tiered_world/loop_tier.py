"""A whole tier on the broker's loop: its supervisor takes it for a process.

The link between them is the real one. Pool threads take turns on the broker's manual clock, so a
run is the same each time; only one of them, or the loop, runs at any moment.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from rlm.config import TierConfig
from rlm.deletions import Deletions
from rlm.link.endpoint import Endpoint, Received, Reply
from rlm.link.messages import AnyMessage
from rlm.link.socket_transport import SocketTransport
from rlm.maintenance.broker_port import LinkBroker
from rlm.plugin_calls import PluginCalls
from rlm.plugins import Plugins
from rlm.service import Link, TierReceiver
from rlmm.store import MemoryStore
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from runtime.disk import OpenFile
from tests.support.sim.ports import SimPorts
from tests.support.tier.memory_topic import MemoryTopic
from tests.support.tier.turns import TurnWorkers

TURNS_MAX = 20
"""Of the metadata manager, for one write: what is written to a topic in memory is there at once."""


class TurnedManager(TopicBasedRemoteLogMetadataManager):
    """Turns itself until a write is read back: no thread of it runs beside the one that waits."""

    def turn(self) -> None:
        if self._settings is not None:
            super().turn()

    def add(self, *args: Any) -> "Future[None]":
        return self._read_back(super().add(*args))

    def update(self, *args: Any) -> "Future[None]":
        return self._read_back(super().update(*args))

    def _read_back(self, write: "Future[None]") -> "Future[None]":
        for _ in range(TURNS_MAX):
            if write.done():
                break
            self.turn()
        return write


class HeldStore(LocalFsRemoteStorageManager):
    """A store whose copies wait while they are held.

    Attributes:
        is_held: whether copies wait before anything of them is there.
        waiting: how many do.
    """

    def __init__(self, tier: "LoopTier") -> None:
        super().__init__()
        self._tier = tier
        self.is_held = False
        self.waiting = 0

    def copy_log_segment_data(self, *args: Any) -> bytes | None:
        self.waiting += 1
        while self.is_held:
            self._tier.workers.pause(None, 1)
        self.waiting -= 1
        return super().copy_log_segment_data(*args)


class _TurnBroker(LinkBroker):
    """Asks the broker from a pool's thread, which gives its turn away until the answer is there."""

    def __init__(self, endpoint: Endpoint, tier: "LoopTier") -> None:
        super().__init__(endpoint)
        self._asks, self._tier = endpoint, tier

    def _ask(self, message: AnyMessage) -> Received:
        answer = self._asks.ask(message)
        while not answer.done():
            self._tier.workers.pause(None, 1)
        return answer.result()


class LoopTier:
    """Starts a tier for a supervisor, and is what that takes for its process.

    Attributes:
        pid: there is none.
        workers: its pools; there once it is configured.
        storage: the store as it sees it.
        metadata: its manager, whose cache outlives it.
    """

    pid = 0

    def __init__(self, ports: SimPorts, topic: MemoryTopic, cache: MemoryStore, store: str) -> None:
        """Make it for one life of a broker.

        Args:
            ports: on the broker's clock and scheduler.
            topic: the metadata topic.
            cache: what this broker's tier knew of the topic.
            store: directory of the remote store.
        """
        self._ports, self._store = ports, store
        self._endpoint: Endpoint | None = None
        self.workers: TurnWorkers
        self.storage = HeldStore(self)
        self.metadata = TurnedManager(
            port_factory=lambda settings: topic.port(),
            store_factory=lambda settings, count: cache,
            clock=ports.clock,
            rng=ports.rng,
            threaded=False,
        )

    def __call__(self, link_fd: int, lock: OpenFile) -> "LoopTier":
        """See `Spawn`."""
        self._endpoint = endpoint = Endpoint(self._take, lambda: None)
        self._receiver = TierReceiver(
            self._plugins,
            self._make_workers,
            self._ports,
            Link(
                broker=_TurnBroker(endpoint, self),
                tell=endpoint.tell,
                abort=self._abort,
                ended=lambda: None,
            ),
        )
        loop = asyncio.get_running_loop()
        SocketTransport(socket.socket(fileno=os.dup(link_fd)), loop, endpoint)
        return self

    def _take(self, received: Received, reply: Reply) -> None:
        self._receiver(received, reply)

    def _make_workers(self, threads: Mapping[str, int]) -> TurnWorkers:
        self.workers = TurnWorkers(self._ports.scheduler, threads)
        return self.workers

    def _plugins(self, config: TierConfig, calls: PluginCalls) -> Plugins:
        self.storage.configure({"dir": self._store})
        deletions = Deletions(
            self.storage, self._ports.clock, config.delete_failing_ms, config.copy_max_ms
        )

        def connect(client_settings: Mapping[str, str]) -> None:
            self.metadata.configure({**config.metadata_settings, **client_settings})

        return Plugins(self.storage, self.metadata, deletions, connect)

    def _abort(self, reason: str) -> None:
        raise AssertionError(f"the tier ends itself: {reason}")

    def end(self) -> None:
        """It is gone, wherever it was."""
        if self._endpoint is not None:
            self.workers.end()
            self._endpoint.end()

    # -- as a process

    def kill(self) -> None:
        self.end()

    def exit_code(self) -> int | None:
        return None

    def wait(self, timeout_s: float | None = None) -> int | None:
        return None

    def starved_ms(self) -> float:
        return 0
