"""Every partition that Apache Kafka wrote opens, agrees with Kafka's dump, and stays as it is."""

import gzip
import re
import shutil
from pathlib import Path

import pytest

from kafka_protocol.files import offset_checkpoint, producer_snapshot
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.log.partition_log import PartitionLog
from local_log.log.tier_segments import indexes_fit, rebuild_indexes
from local_log.recovery.survey import OpenRequest
from runtime.disk import Disk
from tests.support.worlds.local_log import GOLDEN, files_of

CLEAN = sorted(path.name for path in (GOLDEN / "clean").iterdir() if path.name[-1].isdigit())
UNCLEAN = sorted(
    str(path.relative_to(GOLDEN))
    for kind in (
        "after-kill",
        "recovered",
        "running",
        "two-brokers/broker-4",
        "two-brokers/broker-5",
    )
    for path in (GOLDEN / kind).iterdir()
    if path.name != "log-dir-files"
)
# Segments that were reopened after a restart: their byte counter began at 0 again.
REOPENED = {"append-time-0/89", "epochs-0/0", "epochs-0/42", "small-0/20", "txn-1/69"}
REOPENED |= {"unclean-0/94", "compacted-0/240"}
LATER = 1_795_249_420_040  # after every marker in the goldens


def _config(topic: str) -> LogConfig:
    interval = {"plain": 100, "one": 4096, "rep": 4096}.get(topic, 200)
    return LogConfig(
        segment_bytes=150_000 if topic == "multiblock" else 4096,
        segment_index_bytes=8192,
        index_interval_bytes=interval,
        remote_storage_enable=topic.startswith("tiered"),
    )


def _checkpoint(kind: str, name: str) -> dict[TopicPartition, int]:
    path = GOLDEN / kind / "log-dir-files" / name
    return offset_checkpoint.parse(path.read_bytes()) if path.exists() else {}


def _open(relative: str, work: Path, *, clean: bool) -> PartitionLog:
    source = GOLDEN / relative
    work = work / source.name
    shutil.copytree(source, work)
    for path in (work, *work.iterdir()):
        path.chmod(0o755)
    topic, _, number = source.name.rpartition("-")
    tp = TopicPartition(topic, int(number))
    kind = str(source.parent.relative_to(GOLDEN))
    return PartitionLog.open(
        OpenRequest(
            tp,
            work,
            _config(topic),
            LATER,
            recovery_point=_checkpoint(kind, "recovery-point-offset-checkpoint").get(tp, 0),
            log_start=_checkpoint(kind, "log-start-offset-checkpoint").get(tp),
            high_watermark=_checkpoint(kind, "replication-offset-checkpoint").get(tp, 0),
            is_clean=clean,
        ),
        topic_id=bytes(16),
        disk=Disk(),
    )


def _dump(relative: str) -> str:
    path = GOLDEN.parent / "dumps" / "partitions" / f"{relative}.txt"
    if path.exists():
        return path.read_text()
    return gzip.decompress(path.with_name(path.name + ".gz").read_bytes()).decode()


def _batches(dump: str) -> list[tuple[int, ...]]:
    """(base, last, epoch, position, timestamp, size) of every batch that Kafka saw."""
    pattern = (
        r"^baseOffset: (\d+) lastOffset: (\d+) .*?partitionLeaderEpoch: (-?\d+) .*?"
        r"position: (\d+) (?:CreateTime|LogAppendTime): (-?\d+) size: (\d+) "
    )
    return [tuple(map(int, found)) for found in re.findall(pattern, dump, re.MULTILINE)]


@pytest.mark.parametrize("name", CLEAN)
def test_clean_partition_agrees_with_kafka_and_is_left_as_it_was(name, tmp_path):
    log = _open(f"clean/{name}", tmp_path, clean=True)
    before = files_of(GOLDEN / "clean" / name)
    tp = log.topic_partition
    assert log.log_end_offset == _checkpoint("clean", "recovery-point-offset-checkpoint")[tp]
    starts = _checkpoint("clean", "log-start-offset-checkpoint")
    assert log.log_start_offset == starts.get(tp, log.segments.all[0].base_offset)
    seen = [
        (h.base_offset, h.last_offset, h.partition_leader_epoch, at, h.max_timestamp, h.size_bytes)
        for segment in log.segments.all
        for at, h in segment.batches(0)
    ]
    assert seen == _batches(_dump(f"clean/{name}"))
    for base, last, epoch, position, _, size in seen:
        if base < log.log_start_offset:
            continue
        for offset in {base, last}:
            (region,) = log.read(offset, size).regions
            assert (region.position, region.size_bytes) == (position, size)
            assert log.epochs.epoch_for(offset) == epoch
    snapshot = producer_snapshot.parse(before[f"{log.log_end_offset:020d}.snapshot"])
    assert sorted(log.producers.states.dump()) == sorted(snapshot)
    log.close()
    after = files_of(log.directory)
    kept = {n: d for n, d in before.items() if n in after and n != "leader-epoch-checkpoint"}
    assert {n: after[n] for n in kept} == kept
    # Only snapshots of no segment go, and the epoch that began at the log end.
    assert all(n.endswith(".snapshot") for n in set(before) - set(after))
    assert set(after) <= set(before)


@pytest.mark.parametrize("name", CLEAN)
def test_producer_state_replayed_from_the_log_is_kafkas(name, tmp_path):
    log = _open(f"clean/{name}", tmp_path, clean=True)
    if log.topic.startswith("compacted") or log.segments.all[0].base_offset > 0:
        return  # what the first batches said is no longer there
    golden = sorted(log.producers.states.dump())
    log.close()
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    replayed = PartitionLog.open(
        OpenRequest(log.topic_partition, log.directory, log.config, LATER, is_clean=True),
        topic_id=bytes(16),
        disk=Disk(),
    )
    # Kafka forgets producers after a day; the log remembers them all.
    assert set(golden) <= set(replayed.producers.states.dump())


@pytest.mark.parametrize("name", CLEAN)
def test_indexes_made_from_the_log_are_kafkas(name, tmp_path):
    log = _open(f"clean/{name}", tmp_path, clean=True)
    log.close()
    for segment in log.segments.all:
        assert indexes_fit(Disk(), segment) or log.topic.startswith("compacted")
        paths = (segment.offset_index.path, segment.time_index.path)
        golden = [path.read_bytes() for path in paths]
        rebuild_indexes(Disk().atomic_write, segment)
        same = golden == [path.read_bytes() for path in paths]
        assert same == (f"{name}/{segment.base_offset}" not in REOPENED)


@pytest.mark.parametrize("relative", UNCLEAN)
def test_partition_of_a_running_or_killed_broker_is_recovered_whole(relative, tmp_path):
    log = _open(relative, tmp_path, clean=False)
    seen = [
        (h.base_offset, h.last_offset, h.partition_leader_epoch, at, h.max_timestamp, h.size_bytes)
        for segment in log.segments.all
        for at, h in segment.batches(0)
    ]
    assert seen == _batches(_dump(relative))
    assert log.truncated_bytes == 0
    for segment in log.segments.all:
        assert indexes_fit(Disk(), segment) or segment is log.segments.all[-1]


def test_recovery_after_a_kill_finds_what_kafka_found(tmp_path):
    log = _open("after-kill/unclean-0", tmp_path, clean=False)
    log.update_high_watermark(log.log_end_offset)
    kafka = producer_snapshot.parse(
        (GOLDEN / "clean/unclean-0" / f"{121:020d}.snapshot").read_bytes()
    )
    assert set(kafka) <= set(log.producers.states.dump())
    assert log.last_stable_offset == 120
    entries = [tuple(entry) for entry in log.segments.all[-1].aborted()]
    text = _dump("recovered/unclean-0")
    pattern = r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
    assert entries == [tuple(map(int, found)) for found in re.findall(pattern, text)]


def test_transaction_indexes_rebuilt_from_the_log_are_kafkas(tmp_path):
    log = _open("clean/txn-0", tmp_path, clean=True)
    golden = {path.name: path.read_bytes() for path in log.directory.glob("*.txnindex")}
    log.close(clean=False)
    for path in (*log.directory.glob("*.txnindex"), *log.directory.glob("*.snapshot")):
        path.unlink()
    PartitionLog.open(
        OpenRequest(log.topic_partition, log.directory, log.config, LATER, is_clean=False),
        topic_id=bytes(16),
        disk=Disk(),
    )
    rebuilt = {path.name: path.read_bytes() for path in log.directory.glob("*.txnindex")}
    assert rebuilt == golden
