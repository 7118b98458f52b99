"""A log, a store and metadata that outlive a tier killed at any step."""

from pathlib import Path

from rlm.deletions import Deletions
from rlm.link.messages import PartitionSettings
from rlm.maintenance.copy_task import copy_pass
from rlm.maintenance.effects import PassResult
from rlm.maintenance.expiration_task import expiration_pass
from rlm.maintenance.performer import World
from rlm.maintenance.store_gate import StoreGate
from rlm.maintenance.takeover_task import take_over
from rlm.plugin_calls import PluginCalls
from rlm.telemetry import Telemetry
from rlm.workers import EXPIRATION_POOL
from rlmm import lineage
from rlmm.api import Fence
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import SegmentState
from rsm_plugins.testing import FaultyStorage
from tests.support.sim.clock import ManualClock
from tests.support.sim.rng import SeededRng
from tests.support.tier.log_in_memory import PARTITION, SimulatedBroker, SteppedTier, values_of

COPY_MAX_MS = 60_000


class Scene:
    """One broker, one store, one metadata topic, and tiers that come and go."""

    def __init__(self, root: Path, settings: PartitionSettings | None = None) -> None:
        self.root = root
        self.clock = ManualClock(wall_ms=10_000_000)
        self.broker = SimulatedBroker()
        self.broker.now_ms = 10_000_000
        self.storage = FaultyStorage(self.open_storage())
        self.rng = SeededRng(7)
        self.metadata = InMemoryRemoteLogMetadataManager(self.clock, self.rng)
        self.settings = settings or PartitionSettings()
        self.incarnation = 0
        self.kill_at: int | None = None
        self.kill_before = False
        self.tier = self.start_tier()

    def open_storage(self) -> RemoteStorageManager:
        """The plugin."""
        plugin = LocalFsRemoteStorageManager()
        plugin.configure({"dir": str(self.root)})
        return plugin

    def objects(self) -> list[str]:
        """Everything that is in the store, half-written things too."""
        return [str(path) for path in self.root.rglob("*") if path.is_file()]

    def start_tier(self) -> SteppedTier:
        self.incarnation += 1
        self.storage.replace_inner(self.open_storage())  # a new process remembers nothing
        world = World(
            broker=self.broker,
            metadata=self.metadata,
            storage=self.storage,
            clock=self.clock,
            rng=self.rng,
            calls=PluginCalls(self.clock),
            telemetry=Telemetry(),
            deletions=Deletions(self.storage, self.clock, COPY_MAX_MS, COPY_MAX_MS),
            copy_max_ms=COPY_MAX_MS,
            call_max_ms=COPY_MAX_MS,
            pause=lambda wait, wait_ms: self.clock.advance(wait_ms),
        )
        self.tier = SteppedTier(world, Fence(self.broker.leader_epoch, self.incarnation))
        self.tier.own()
        return self.tier

    def pass_all(self) -> str:
        """Take over; copy and expire unless that is unhealthy.

        The reason if something is unhealthy.
        """
        tier = self.tier
        tier.kill_at, tier.kill_before = self.kill_at, self.kill_before
        unhealthy = tier.run(take_over()).unhealthy
        if unhealthy:
            return unhealthy
        unhealthy_ones = [
            tier.run(
                copy_pass(
                    PARTITION,
                    self.settings,
                    broker_id=1,
                    custom_metadata_bytes_max=128,
                    throttle_ms=lambda size: 0,
                    gate=StoreGate(),
                )
            ).unhealthy,
            self._expire().unhealthy,
        ]
        return next((unhealthy for unhealthy in unhealthy_ones if unhealthy), "")

    def _expire(self) -> PassResult:
        """A pass, and the next one where it goes on at once."""
        while True:
            task = expiration_pass(
                self.settings,
                self.tier.ownership.own_copies,
                broker_id=1,
                copy_max_ms=COPY_MAX_MS,
                gate=StoreGate(),
            )
            result: PassResult = self.tier.run(task, EXPIRATION_POOL)
            if result.again_in_ms != 0:
                return result

    def settle(self) -> None:
        """Quiescence and two passes, the copy maximum being over."""
        self.kill_at = None
        self.pass_all()
        self.clock.advance(COPY_MAX_MS + 1)
        self.pass_all()
        self.clock.advance(COPY_MAX_MS + 1)
        self.pass_all()

    def check_readable(self) -> None:
        """Every offset from the log start on is readable, with the bytes its leader wrote."""
        local = self.broker.local_values()
        for offset in range(self.broker.log_start, self.broker.end):
            epoch = lineage.epoch_at(self.broker.chain, offset)
            assert epoch is not None, offset
            found = local.get((epoch, offset))
            if found is None:
                segment = self.metadata.segment_for(PARTITION, epoch, offset)
                assert segment is not None, f"offset {offset} is in no tier"
                with self.storage.fetch_log_segment(segment, 0) as stream:
                    found = values_of(stream.read())[epoch, offset]
            assert found == self.broker.truth[epoch, offset], offset

    def check_no_leak(self) -> None:
        """The store holds the objects of FINISHED segments, exactly."""
        listed = list(self.metadata.list_segments(PARTITION))
        assert {segment.state for segment in listed} <= {SegmentState.COPY_SEGMENT_FINISHED}
        assert len(self.objects()) == 3 * len(listed), self.objects()
