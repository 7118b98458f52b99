"""One broker through many lives, each ended by a kill, a power cut, a failed disk or a stop."""

import asyncio
import copy
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from broker.node.directories import DirectoryError
from local_log.errors import KafkaStorageError, LogClosed
from metadata_topic.quorum.active.submit import DecisionTimedOut
from metadata_topic.quorum.node import MetadataUnavailable
from metadata_topic.quorum.start.format import FormatPlan, format_directory
from metadata_topic.raft.voters import VoterEndpoint
from tests.support.damage.hosting_life import CLUSTER, NODE, Ended, HostingLife
from tests.support.damage.hosting_promises import Promises
from tests.support.sim.clock import ManualClock
from tests.support.sim.power_cut_disk import PowerCutError
from tests.support.sim.rng import SeededRng
from tests.support.worlds.crash_disk import CrashDisk
from tests.support.worlds.forgetful_disk import QuickDisk


class HostingLives:
    """A directory with one broker's disks, and what its lives have promised.

    Attributes:
        errors: what clients met that is no answer.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self._move(root)
        self.rng, self.clock = SeededRng(seed), ManualClock()
        self.promises = Promises()
        self.errors: list[BaseException] = []
        self.counter = 0
        plan = FormatPlan(
            CLUSTER,
            NODE,
            tuple(self.paths),
            self.home,
            VoterEndpoint("CONTROLLER", "localhost", 9093),
        )
        for path in self.paths:
            path.mkdir(parents=True, exist_ok=True)
        ids = format_directory(plan, disk=QuickDisk(), clock=self.clock, rng=self.rng)
        self.directory_ids = set(ids.values())
        self.disk = CrashDisk(root, self.rng)
        self._is_cut = False

    def _move(self, root: Path) -> None:
        self.root, self.home, self.paths = root, root / "a", [root / "a", root / "b"]

    def copied(self, root: Path, seed: int) -> "HostingLives":
        """Another broker that has lived the same lives, all of them ended by a stop."""
        shutil.copytree(self.root, root)
        other = copy.copy(self)
        other._move(root)
        other.promises, other.errors = copy.deepcopy(self.promises), []
        other.rng, other.clock = SeededRng(seed), ManualClock(self.clock.wall_ms())
        other.disk = CrashDisk(root, other.rng)
        return other

    def value(self, topic_id: bytes) -> bytes:
        self.counter += 1
        return b"%s/%d" % (topic_id.hex()[:8].encode(), self.counter)

    def below(self, end: int) -> int:
        """A number in [0, end)."""
        return int(self.rng.random() * end)

    def live(
        self,
        script: Callable[[HostingLife], Awaitable[None]],
        *,
        operations: int | None = None,
        kills: bool = False,
        stops: bool = False,
    ) -> bool:
        """One life: start, check, the script, check.

        Args:
            script: what clients ask for.
            operations: in the operation of this number the life ends.
            kills: by a kill, not by a power cut.
            stops: otherwise at its end by a clean stop, not by a kill.

        Returns:
            Whether it came to the end of its script.
        """
        if self._is_cut:
            before, self._is_cut = self.disk, False
            self.disk = CrashDisk(self.root, self.rng, operations, kills=kills)
            self.disk.take_faults(before)
        else:
            self.disk.begin(operations, kills=kills)
        life = HostingLife(self)
        came = asyncio.run(self._live(life, script, stops=stops))
        life.let_go()
        if self.errors:
            raise self.errors[0]
        if self.disk.is_off:
            self._is_cut = not kills
            if self._is_cut:
                self.promises.power_cut()
        elif not stops:
            self.disk.kill()
        return came

    def cut(self) -> None:
        """Cut the power between two lives."""
        self.disk.begin()
        self.disk.cut()
        self._is_cut = True
        self.promises.power_cut()

    async def _live(
        self, life: HostingLife, script: Callable[[HostingLife], Awaitable[None]], *, stops: bool
    ) -> bool:
        try:
            await life.start()
            await life.settle()
            life.check(ended=True)
            await script(life)
            await life.settle()
            life.check()
            if stops:
                await life.stop()
        except (Ended, PowerCutError, MetadataUnavailable, DecisionTimedOut):
            assert self.disk.is_off or self.disk.has_failed
        except (OSError, KafkaStorageError, DirectoryError, LogClosed):
            if not (self.disk.is_off or self.disk.has_failed):
                raise
        else:
            return True
        return False
