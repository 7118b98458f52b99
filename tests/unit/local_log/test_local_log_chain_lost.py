"""The epoch chain at opening: made from the batches, or said to be lost."""

import pytest

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.types import EpochEntry
from local_log.log import lookups
from tests.support.worlds.local_log import append, open_log, retain, with_config

CHAIN = "leader-epoch-checkpoint"


def _with_epochs(directory, **kwargs):
    log = open_log(directory, **kwargs)
    for i in range(60):
        append(log, epoch=i // 20)
    log.update_high_watermark(log.log_end_offset)
    return log


BAD_CHAINS = {
    "missing": None,
    "empty": b"",
    "damaged": b"0\n7\n0 0\n",
    "no entries": b"0\n0\n",
    "short": b"0\n1\n2 40\n",
    "contradicts": b"0\n3\n0 0\n1 25\n2 40\n",
    "an epoch begins too early": b"0\n3\n0 0\n1 20\n2 39\n",
    "descends": b"0\n3\n0 0\n2 40\n1 20\n",
}


def _spoil(directory, content):
    (directory / CHAIN).unlink()
    if content is not None:
        (directory / CHAIN).write_bytes(content)


@pytest.mark.parametrize("content", BAD_CHAINS.values(), ids=BAD_CHAINS)
@pytest.mark.parametrize("tiered", [False, True])
def test_bad_chain_is_made_from_the_batches_where_they_reach_down(tmp_path, content, tiered):
    config = with_config(remote_storage_enable=tiered)
    log = _with_epochs(tmp_path, config=config, log_start=0)
    log.close()
    _spoil(tmp_path, content)
    again = open_log(tmp_path, config=config, log_start=0, clean=False)
    assert [(e.epoch, e.start_offset) for e in again.epochs.entries()] == [(0, 0), (1, 20), (2, 40)]
    written = epoch_checkpoint.parse((tmp_path / CHAIN).read_bytes())
    assert written == again.epochs.entries()


@pytest.mark.parametrize("content", BAD_CHAINS.values(), ids=BAD_CHAINS)
@pytest.mark.parametrize("log_start", [0, None])
def test_bad_chain_of_what_is_remote_is_said_to_be_lost(tmp_path, content, log_start):
    config = with_config(remote_storage_enable=True, local_retention_bytes=0)
    log = _with_epochs(tmp_path, config=config, log_start=0)
    base = log.segments.all[1].base_offset
    log.set_copied_through(base - 1, log.epochs.epoch_for(base - 1))
    assert retain(log, 0)
    log.close()
    _spoil(tmp_path, content)
    known = {"config": config, "log_start": log_start, "recovery_point": 0}
    again = open_log(tmp_path, clean=False, **known)
    assert again.epoch_file.lost
    assert again.log_start_known is (log_start is not None)
    assert again.log_start_offset == (base if log_start is None else log_start)
    assert [entry.start_offset for entry in again.epochs.entries()] == [base, 20, 40]
    whole = [EpochEntry(0, 0), EpochEntry(1, 20), EpochEntry(2, 40)]
    assert not lookups.fits_batches(again, [EpochEntry(0, 0), EpochEntry(1, 21), EpochEntry(2, 40)])
    assert lookups.fits_batches(again, whole)
    again.epoch_file.restore(again.restored_chain(whole))
    assert again.epoch_file.lost == ""
    assert epoch_checkpoint.parse((tmp_path / CHAIN).read_bytes()) == whole
    again.close()
    assert open_log(tmp_path, **known).epoch_file.lost == ""


def test_a_log_start_at_the_first_segment_ends_the_loss_of_the_chain(tmp_path):
    config = with_config(remote_storage_enable=True, local_retention_bytes=0)
    log = _with_epochs(tmp_path, config=config, log_start=0)
    base = log.segments.all[1].base_offset
    log.set_copied_through(base - 1, log.epochs.epoch_for(base - 1))
    assert retain(log, 0)
    log.close()
    _spoil(tmp_path, None)
    again = open_log(tmp_path, clean=False, config=config, log_start=0, recovery_point=0)
    again.update_high_watermark(again.log_end_offset)
    again.raise_log_start(base - 1)
    again.clip_chain(base - 1)
    assert again.epoch_file.lost
    again.raise_log_start(base)
    again.clip_chain(base)
    assert again.epoch_file.lost == ""


def test_chain_that_begins_above_what_is_remote_is_lost(tmp_path):
    """It contradicts no batch that is here, and says nothing of those before it."""
    config = with_config(remote_storage_enable=True, local_retention_bytes=0)
    log = _with_epochs(tmp_path, config=config, log_start=0)
    base = log.segments.all[1].base_offset
    log.set_copied_through(base - 1, log.epochs.epoch_for(base - 1))
    assert retain(log, 0)
    log.close()
    for first, is_lost in ((0, False), (1, True), (base, True)):
        _spoil(tmp_path, b"0\n3\n0 %d\n1 20\n2 40\n" % first)
        known = {"config": config, "log_start": 0, "recovery_point": 0, "clean": False}
        again = open_log(tmp_path, **known)
        assert bool(again.epoch_file.lost) is is_lost
        again.close(clean=False)


def test_chain_of_a_tiered_log_that_ends_before_its_batches_is_lost(tmp_path):
    config = with_config(remote_storage_enable=True, local_retention_bytes=0)
    log = _with_epochs(tmp_path, config=config, log_start=0)
    base = log.segments.all[1].base_offset
    log.set_copied_through(base - 1, log.epochs.epoch_for(base - 1))
    assert retain(log, 0)
    log.close()
    _spoil(tmp_path, b"0\n2\n0 0\n1 20\n")
    known = {"config": config, "log_start": 0, "recovery_point": 0, "clean": False}
    assert open_log(tmp_path, **known).epoch_file.lost == "it ends before epoch 2"


def test_chain_on_disk_is_clipped_only_after_the_log_start_checkpoint(tmp_path):
    config = with_config(remote_storage_enable=True)
    log = _with_epochs(tmp_path, config=config, log_start=0)
    log.raise_log_start(30)
    log.epochs.assign(9, log.log_end_offset)  # a new leader epoch writes the whole chain
    assert epoch_checkpoint.parse((tmp_path / CHAIN).read_bytes())[0].start_offset == 0
    log.clip_chain(30)
    assert log.epochs.entries()[0].start_offset == 30
    assert epoch_checkpoint.parse((tmp_path / CHAIN).read_bytes())[0].start_offset == 0
    log.close(clean=False)
    again = open_log(tmp_path, clean=False, config=config, log_start=30, high_watermark=60)
    assert again.epochs.entries()[0].start_offset == 30


def test_chain_that_lags_behind_the_batches_continues(tmp_path):
    log = _with_epochs(tmp_path)
    log.close(clean=False)
    _spoil(tmp_path, b"0\n1\n0 0\n")
    again = open_log(tmp_path, clean=False, recovery_point=log.segments.all[0].base_offset)
    assert [(e.epoch, e.start_offset) for e in again.epochs.entries()] == [(0, 0), (1, 20), (2, 40)]


def test_a_chain_written_off_the_loop_yields_to_changes_of_the_loop(tmp_path):
    log = _with_epochs(tmp_path, config=with_config(remote_storage_enable=True), log_start=0)
    version, restored = log.epoch_file.version, log.restored_chain([EpochEntry(0, 0)])
    log.epochs.assign(7, log.log_end_offset)
    log.epoch_file.write_ahead(restored, version)
    on_disk = epoch_checkpoint.parse((tmp_path / CHAIN).read_bytes())
    assert on_disk == log.epochs.entries()
    assert on_disk[-1].epoch == 7


def test_a_chain_written_off_the_loop_is_not_written_twice(tmp_path):
    log = _with_epochs(tmp_path, config=with_config(remote_storage_enable=True), log_start=0)
    log.epoch_file.write_epoch_ahead(7, log.log_end_offset)
    (tmp_path / CHAIN).unlink()  # a second write would make it again
    log.epochs.assign(7, log.log_end_offset)
    assert not (tmp_path / CHAIN).exists()
    log.epochs.assign(8, log.log_end_offset)
    assert epoch_checkpoint.parse((tmp_path / CHAIN).read_bytes()) == log.epochs.entries()
