"""The log against a naive twin: append, read, roll, truncate, expire, reopen, kill."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.records import build_batch, iter_records
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.log import lookups
from local_log.log.partition_log import PartitionLog
from local_log.log.truncation import truncate_to
from local_log.recovery.survey import OpenRequest
from runtime.disk import Disk
from tests.support.worlds.local_log import read_bytes, retain

NOW_MS = 1_700_000_000_000


class LogTwin(RuleBasedStateMachine):
    """The twin is a list of (offset, epoch, timestamp, value) with the batches' borders."""

    @initialize(segment_bytes=st.integers(600, 1500), interval=st.integers(0, 400))
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="log-twin-"))
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=600,
            retention_ms=-1,
            file_delete_delay_ms=0,
        )
        self.batches: list[list[tuple[int, int, int, bytes]]] = []
        self.start = 0
        self.epoch = 0
        self.clock = NOW_MS
        self.log = self._open(clean=True)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    def _open(self, *, clean: bool) -> PartitionLog:
        log = PartitionLog.open(
            OpenRequest(
                TopicPartition("t", 0),
                self.root,
                self.config,
                self.clock,
                is_clean=clean,
                log_start=self.start,
                recovery_point=self.log.recovery_point if hasattr(self, "log") else 0,
            ),
            topic_id=bytes(16),
            disk=Disk(),
        )
        log.update_high_watermark(log.log_end_offset)
        return log

    @property
    def end(self) -> int:
        return self.batches[-1][-1][0] + 1 if self.batches else self.log.log_end_offset

    @rule(
        deltas=st.lists(st.integers(-50, 200), min_size=1, max_size=4),
        size=st.integers(0, 90),
        codec=st.sampled_from([0, 0, 0, 4]),
    )
    def append(self, deltas: list[int], size: int, codec: int) -> None:
        first = self.log.log_end_offset
        records = [
            (self.clock + delta, b"k", bytes([i]) * size, []) for i, delta in enumerate(deltas)
        ]
        batch = build_batch(records, codec=codec)
        info = self.log.append_as_leader(batch, leader_epoch=self.epoch, now_ms=self.clock)
        assert info.first_offset == first
        self.batches.append([(first + i, self.epoch, r[0], r[2]) for i, r in enumerate(records)])
        self.log.update_high_watermark(self.log.log_end_offset)
        self.clock += 7

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.log.log_end_offset

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.local_log_start_offset, self.end))
        truncate_to(self.log, offset)
        self.batches = [batch for batch in self.batches if batch[-1][0] < offset]
        if self.batches and self.batches[-1][-1][0] + 1 < self.start:
            self.batches = []
        self.log.update_high_watermark(self.log.log_end_offset)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def raise_start(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.raise_log_start(offset)
        self.start = max(self.start, offset)

    @rule(limit=st.integers(0, 3000))
    def retain(self, limit: int) -> None:
        before = self.log.size_bytes
        self.log.set_config(
            LogConfig(
                segment_bytes=self.config.segment_bytes,
                index_interval_bytes=self.config.index_interval_bytes,
                segment_index_bytes=600,
                retention_ms=-1,
                retention_bytes=limit,
                file_delete_delay_ms=0,
            )
        )
        retain(self.log, self.clock)
        assert self.log.size_bytes >= min(limit, before) or self.start > 0
        self.start = self.log.log_start_offset
        local = self.log.segments.all[0].base_offset
        self.batches = [batch for batch in self.batches if batch[-1][0] >= local]

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        end = self.log.log_end_offset
        self.log.close(clean)
        self.log = self._open(clean=clean)
        assert self.log.log_end_offset == end
        assert self.log.truncated_bytes == 0

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.log_start_offset == self.start
        records = [record for batch in self.batches for record in batch if record[0] >= self.start]
        if self.batches:
            assert log.log_end_offset == self.end
        seen = []
        offset = max(self.start, log.local_log_start_offset)
        while offset < log.log_end_offset:
            data = read_bytes(log, offset, 300)
            if not data:
                break
            found = [
                record
                for at, header in iter_batches(data)
                for record in iter_records(data, at)
                if record.offset >= offset
            ]
            seen += [
                (r.offset, log.epochs.epoch_for(r.offset), r.timestamp, r.value) for r in found
            ]
            offset = found[-1].offset + 1
        assert seen == records
        for timestamp in {record[2] for record in records[::3]} | {self.clock + 1000}:
            expected = next((r for r in records if r[2] >= timestamp), None)
            hit = lookups.offset_for_timestamp(log, timestamp)
            assert (hit and hit.offset) == (expected and expected[0])
        assert sum(s.size_bytes for s in log.segments.all) == log.size_bytes


LogTwin.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLogAgainstTwin = LogTwin.TestCase
