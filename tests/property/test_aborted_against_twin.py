"""Aborted transactions of a read against a naive list, while the log rolls, is cut and dropped."""

from pathlib import Path
from random import Random

import pytest

from kafka_protocol.records.control import ControlType, end_transaction_batch
from local_log.log.partition_log import PartitionLog
from local_log.log.truncation import truncate_to
from runtime.disk import Disk
from tests.support.worlds.local_log import NOW_MS, batch_of, open_log, retain

PRODUCERS = range(4)


class Transaction:
    def __init__(self, producer_id: int, first: int) -> None:
        self.producer_id, self.first = producer_id, first
        self.marker: int | None = None
        self.is_aborted = False


class Twin:
    """Every transaction that was ever begun and is still in the log."""

    def __init__(self, directory: Path, rng: Random) -> None:
        self.directory, self.rng = directory, rng
        self.log: PartitionLog = open_log(directory)
        self.all: list[Transaction] = []
        self.committed = 0

    def _open(self, producer_id: int) -> Transaction | None:
        mine = (t for t in self.all if t.producer_id == producer_id and t.marker is None)
        return next(mine, None)

    def data(self) -> None:
        producer_id = self.rng.choice(PRODUCERS)
        batch = batch_of(producer_id=producer_id, is_transactional=True)
        info = self.log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, from_client=False)
        if self._open(producer_id) is None:
            self.all.append(Transaction(producer_id, info.first_offset))

    def end(self) -> None:
        found = self._open(self.rng.choice(PRODUCERS))
        if found is None:
            return
        found.is_aborted = self.rng.random() < 0.7
        batch = end_transaction_batch(
            ControlType.ABORT if found.is_aborted else ControlType.COMMIT,
            base_offset=0,
            leader_epoch=0,
            timestamp_ms=NOW_MS,
            producer_id=found.producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        info = self.log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, from_client=False)
        found.marker = info.first_offset

    def plain(self) -> None:
        for _ in range(self.rng.randrange(20)):
            self.log.append_as_leader(batch_of(), leader_epoch=0, now_ms=NOW_MS)

    def drop(self) -> None:
        self.committed = self.log.log_end_offset
        self.log.update_high_watermark(self.committed)
        middle = (self.log.log_start_offset + self.log.log_end_offset) // 2
        if self.log.last_stable_offset > middle:
            self.log.raise_log_start(middle)
            retain(self.log, NOW_MS)

    def cut(self) -> None:
        end = self.log.log_end_offset - self.rng.randrange(1, 30)
        truncate_to(self.log, max(end, self.committed))
        end = self.log.log_end_offset
        self.all = [t for t in self.all if t.first < end]
        for each in self.all:
            if each.marker is not None and each.marker >= end:
                each.marker = None

    def again(self) -> None:
        # Recovery finds no beginning below the log start: those are excluded of unclean stops.
        is_clean = self.log.log_start_offset > 0 or self.rng.random() < 0.5
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.close(clean=is_clean)
        self.log = open_log(
            self.directory,
            clean=is_clean,
            recovery_point=end if is_clean else 0,
            log_start=start,
            high_watermark=self.committed,
        )

    def check(self) -> None:
        low, high = self.log.log_start_offset, self.log.log_end_offset
        start = self.rng.randint(low, high)
        end = self.rng.randint(start, high) + 1
        expected = sorted(
            (t.producer_id, t.first)
            for t in self.all
            if t.marker is not None and t.is_aborted and t.marker >= start and t.first < end
        )
        assert sorted(self.log.aborted_transactions(start, end)) == expected, (start, end)


@pytest.mark.parametrize("seed", range(12))
def test_every_read_names_the_aborted_transactions_that_it_crosses(
    tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    twin = Twin(tmp_path, rng)
    steps = [twin.data, twin.data, twin.end, twin.end, twin.plain, twin.drop, twin.cut, twin.again]
    for _ in range(150):
        rng.choices(steps, [6, 6, 6, 6, 2, 1, 1, 1])[0]()
        twin.check()
    assert any(t.is_aborted for t in twin.all)


class OpensCounted(Disk):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open_read(self, path: Path):
        self.opened.append(path.name)
        return super().open_read(path)


def test_a_transaction_index_is_opened_once_and_only_where_there_is_one(tmp_path: Path) -> None:
    disk = OpensCounted()
    log = open_log(tmp_path, disk=disk)
    twin = Twin(tmp_path / "unused", Random(0))
    twin.log = log
    for _ in range(40):
        log.append_as_leader(batch_of(), leader_epoch=0, now_ms=NOW_MS)
        log.roll(NOW_MS)
    twin.rng = Random(1)
    while not any(t.is_aborted for t in twin.all):
        twin.data()
        twin.end()
    log.append_as_leader(batch_of(), leader_epoch=0, now_ms=NOW_MS)
    end = log.log_end_offset
    disk.opened.clear()
    for start in (0, 20, end - 1):
        log.aborted_transactions(start, end)
    assert disk.opened == [log.segments.all[-1].path(".txnindex").name]
    disk.opened.clear()
    again = open_log(tmp_path, disk=disk, clean=False)
    disk.opened.clear()
    aborted = again.aborted_transactions(0, end)
    assert aborted == log.aborted_transactions(0, end) != []
    assert disk.opened == [log.segments.all[-1].path(".txnindex").name]
