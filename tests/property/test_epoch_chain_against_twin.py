"""The epoch chain of a log against a naive twin: one epoch an offset.

Leaders write and lead in vain, followers are cut and take what another leader has; the machine
loses power, or the process is killed, between any two of these.
"""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_protocol.records.records import build_batch
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.leader_epoch_cache import EpochEnd, LeaderEpochCache, truncation_for
from local_log.log.partition_log import PartitionLog
from local_log.log.results import Ended
from local_log.log.truncation import truncate_to
from local_log.recovery.survey import OpenRequest
from tests.support.sim.power_cut_disk import PowerCutDisk
from tests.support.sim.rng import SeededRng

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, segment_index_bytes=600)


class ChainTwin(RuleBasedStateMachine):
    """The twin: `epochs[offset]` of each record, and the epoch in which it leads in vain."""

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.root, self.rng = Path(tempfile.mkdtemp(prefix="chain-twin-")), SeededRng(seed)
        self.disk = PowerCutDisk(self.root, self.rng)
        self.epochs: list[int] = []
        self.in_vain: int | None = None
        self.newest = self.flushed = 0
        self.log = self._open(recovery_point=0)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    def _open(self, **known: int | bool) -> PartitionLog:
        return PartitionLog.open(
            OpenRequest(TopicPartition("t", 0), self.root, CONFIG, NOW_MS, **known),
            topic_id=bytes(16),
            disk=self.disk,
        )

    def _cut(self, end: int) -> None:
        truncate_to(self.log, end)
        del self.epochs[self.log.log_end_offset :]
        self.flushed = min(self.flushed, len(self.epochs))
        self.in_vain = None

    @rule(step=st.integers(1, 3))
    def lead(self, step: int) -> None:
        self.newest += step
        self.in_vain = self.newest
        self.log.epochs.assign(self.newest, self.log.log_end_offset)

    @rule(count=st.integers(1, 3))
    def append_as_leader(self, count: int) -> None:
        if self.in_vain is None and (not self.epochs or self.epochs[-1] != self.newest):
            self.lead(1)
        batch = build_batch([(NOW_MS, None, b"v", []) for _ in range(count)])
        self.log.append_as_leader(batch, leader_epoch=self.newest, now_ms=NOW_MS)
        self.epochs += [self.newest] * count
        self.in_vain = None

    @rule(steps=st.lists(st.integers(0, 2), min_size=1, max_size=4), back=st.integers(0, 6))
    def follow(self, steps: list[int], back: int) -> None:
        """Another leads, whose log left ours `back` records before its end."""
        agreed = max(len(self.epochs) - back, 0)
        self._cut(agreed)
        epoch, batches = self.epochs[-1] if self.epochs else 0, bytearray()
        for number, step in enumerate(steps):
            epoch += step
            offset = len(self.epochs) + number
            batches += build_batch(
                [(NOW_MS, None, b"f", [])], base_offset=offset, leader_epoch=epoch
            )
        assert self.log.last_fetched_epoch == (self.epochs[-1] if self.epochs else -1)
        done = self.log.append_batches(
            bytes(batches), now_ms=NOW_MS, asked_offset=len(self.epochs), leader_epoch=epoch
        )
        assert done.ended is Ended.ALL
        epoch = self.epochs[-1] if self.epochs else 0
        for step in steps:
            epoch += step
            self.epochs.append(epoch)
        self.newest = max(self.newest, epoch)

    @rule(theirs=st.lists(st.integers(0, 3), max_size=8), shared=st.integers(0, 20))
    def find_the_common_end(self, theirs: list[int], shared: int) -> None:
        """A leader's log that shares a beginning: each cut comes nearer to it, none below it."""
        shared = min(shared, len(self.epochs))
        leader = self.epochs[:shared]
        last = leader[-1] if leader else 0
        for step in theirs:
            # Records of one epoch are one leader's: what follows is of an epoch that this log has
            # not from here on.
            last += step
            while last in self.epochs[shared:]:
                last += 1
            leader.append(last)
        chain = LeaderEpochCache()
        for offset, epoch in enumerate(leader):
            chain.assign(epoch, offset)
        for _ in range(len(self.epochs) + 2):
            end = len(self.epochs)
            ours = self.log.last_fetched_epoch
            found = chain.end_offset_for(ours, len(leader))
            if ours == -1 or (
                found is not None and found.epoch >= ours and found.end_offset >= end
            ):
                break
            if found is None:  # the leader's epochs are older than ours: no such leader
                return
            cut = truncation_for(self.log.epochs, EpochEnd(*found), log_end=self.log.log_end_offset)
            assert shared <= cut < end or self.log.epochs.reaches(end)
            self._cut(cut)
        assert self.epochs == leader[: len(self.epochs)]

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = len(self.epochs)

    @rule(kills=st.booleans())
    def end(self, kills: bool) -> None:
        point = self.log.recovery_point
        if kills:
            self.disk.kill()
            self.disk.begin()
        else:
            self.disk.cut()
            self.disk = PowerCutDisk(self.root, self.rng)
        self.log = self._open(recovery_point=point)
        found = self.log.log_end_offset
        assert found >= self.flushed
        if kills:
            assert found == len(self.epochs)
        else:
            headers = [h for s in self.log.segments.all for _, h in s.batches(0)]
            self.epochs = [
                h.partition_leader_epoch for h in headers for _ in range(h.last_offset_delta + 1)
            ]
        self.in_vain = None

    @rule()
    def stop(self) -> None:
        self.log.close()
        self.log = self._open(is_clean=True, recovery_point=len(self.epochs))
        assert self.log.log_end_offset == len(self.epochs)
        self.in_vain = None

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        chain, end = self.log.epochs, self.log.log_end_offset
        assert end == len(self.epochs)
        assert [chain.epoch_for(offset) for offset in range(end)] == self.epochs
        assert chain.latest_epoch == (
            self.in_vain if self.in_vain is not None else self.epochs[-1] if self.epochs else None
        )
        for asked in {*self.epochs, *(epoch + 1 for epoch in self.epochs)}:
            found = chain.end_offset_for(asked, end)
            if chain.latest_epoch is None or asked > chain.latest_epoch:
                assert found is None
            elif asked >= self.epochs[0]:
                below = [epoch for epoch in self.epochs if epoch <= asked]
                if asked == self.in_vain:
                    assert found == (asked, end)
                else:
                    assert found == (below[-1], len(below))


ChainTwin.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestChainAgainstTwin = ChainTwin.TestCase
