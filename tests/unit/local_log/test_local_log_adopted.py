"""A log whose end was adopted is made by the next start, whenever that is killed."""

from pathlib import Path

import pytest

from kafka_protocol.types import EpochEntry
from local_log.recovery.acceptance import ACCEPTED, Accepted, Adopted, parse, write_accepted
from runtime.disk import Disk
from tests.support.worlds.local_log import append, filled, open_log, with_config

TIERED = with_config(remote_storage_enable=True)
CHAIN = (EpochEntry(0, 0), EpochEntry(4, 150))


class Killed(Exception):
    pass


class DyingDisk(Disk):
    """Ends the start at one of the steps that change names."""

    left = 10**9

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def rename(self, *args, **kwargs):
        self._step()
        return super().rename(*args, **kwargs)

    def unlink(self, *args, **kwargs):
        self._step()
        return super().unlink(*args, **kwargs)

    def fsync_path(self, *args, **kwargs):
        self._step()
        return super().fsync_path(*args, **kwargs)


@pytest.mark.parametrize("begin", [None, 140])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 6, 9, 14, 20, 30, 10**9])
def test_an_adopted_end_is_made_whenever_the_start_is_killed(
    tmp_path: Path, begin: int | None, steps: int
) -> None:
    log = filled(tmp_path, config=TIERED)
    end = log.log_end_offset
    assert end < 140
    log.close()
    ordered = Accepted(adopted=Adopted(begin, 200, CHAIN), adopted_epoch=4)
    write_accepted(Disk(), tmp_path, ordered)
    known = {"config": TIERED, "log_start": 0, "recovery_point": end}
    disk = DyingDisk()
    disk.left = steps
    try:
        open_log(tmp_path, disk=disk, **known).close()
    except Killed:
        assert steps < 10**9
    log = open_log(tmp_path, clean=False, **known)
    assert log.local_log_start_offset == (0 if begin is None else begin)
    assert log.log_end_offset == 200
    assert tuple(log.epochs.entries()) == CHAIN
    assert log.adopted_epoch == 4
    assert append(log, epoch=5).first_offset == 200
    log.close()
    for _ in range(2):
        log = open_log(tmp_path, clean=False, config=TIERED, log_start=0, recovery_point=0)
        assert log.adopted_epoch == 4
        log.close()
    assert parse((tmp_path / ACCEPTED).read_bytes()) == Accepted(adopted_epoch=4)
