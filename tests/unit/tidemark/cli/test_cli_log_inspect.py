"""What `tidemark log inspect` says of the metadata that it reads beside a stopped broker."""

import json
from pathlib import Path

from kafka_protocol.records.records import build_batch
from metadata_topic.image.records import make
from metadata_topic.quorum.snapshot.snapshots import SnapshotFiles, SnapshotId, snapshot_chunks
from metadata_topic.quorum.start.format import METADATA_DIRECTORY
from runtime.disk import Disk
from tests.support.samples.command_line import CLUSTER, files_below, tidemark, write_config
from tests.support.sim.rng import SeededRng

OTHER_CLUSTER = "BBBBBBBBBBBBBBBBBBBBQQ"
NEWER = SnapshotId(0, 1)


def formatted(tmp_path: Path) -> Path:
    config = write_config(tmp_path)
    done = tidemark("format", "--config", config, "--standalone", "--cluster-id", CLUSTER)
    assert done.exit_code == 0, done.output
    return config


def put_snapshot(tmp_path: Path, cluster_id: str | None) -> None:
    directory = tmp_path / "one" / METADATA_DIRECTORY
    chunks = snapshot_chunks(
        [make("TopicRecord", name="theirs", topic_id=b"t" * 16)],
        snapshot_id=NEWER,
        last_contained_timestamp_ms=1,
        now_ms=lambda: 1,
        cluster_id=cluster_id,
    )
    SnapshotFiles(directory, Disk(), SeededRng(1)).write(NEWER, chunks)


def test_a_snapshot_of_another_cluster_is_named_and_not_believed(tmp_path: Path) -> None:
    config = formatted(tmp_path)
    put_snapshot(tmp_path, OTHER_CLUSTER)
    before = files_below(tmp_path)
    (tmp_path / "one" / "theirs-0").mkdir()
    shown = tidemark("log", "inspect", "theirs", "0", "--config", config)
    first, *rest = shown.output.splitlines()
    assert f"{NEWER.file_name} cannot be used: it is a snapshot of cluster {OTHER_CLUSTER}" in first
    assert any("the metadata have no such partition here" in line for line in rest)
    assert files_below(tmp_path) == before, "nothing is changed"


def test_a_snapshot_of_its_own_cluster_or_of_kafka_is_not_refused(tmp_path: Path) -> None:
    config = formatted(tmp_path)
    for cluster_id in (CLUSTER, None):
        put_snapshot(tmp_path, cluster_id)
        shown = tidemark("log", "inspect", "theirs", "0", "--config", config)
        assert "theirs-0 is in none of log.dirs" in shown.output
        assert "cannot be used" not in shown.output


def test_without_meta_properties_no_cluster_is_compared(tmp_path: Path) -> None:
    config = formatted(tmp_path)
    put_snapshot(tmp_path, OTHER_CLUSTER)
    (tmp_path / "one" / "meta.properties").unlink()
    shown = tidemark("log", "inspect", "theirs", "0", "--config", config)
    assert "cannot be used" not in shown.output


def test_programs_get_the_same(tmp_path: Path) -> None:
    config = formatted(tmp_path)
    directory = tmp_path / "one" / "theirs-0"
    directory.mkdir()
    put_snapshot(tmp_path, CLUSTER)
    whole = build_batch([(1, None, b"value", [])], base_offset=7)
    (directory / "00000000000000000007.log").write_bytes(whole + b"torn")
    asked = "log", "inspect", "theirs", "0", "--config", config
    (note,), (log,) = json.loads(tidemark(*asked, "--json").stdout).values()
    lines = tidemark(*asked).stdout.splitlines()
    assert note == lines[0]
    assert f"theirs-0 in {log['directory']}" == lines[1]
    assert (log["topic"], log["partition"], log["is_refused"]) == ("theirs", 0, False)
    assert log["segments"] == [
        {
            "base_offset": 7,
            "end_offset": 8,
            "size_bytes": len(whole) + 4,
            "whole_bytes": len(whole),
            "ending": "torn",
            "was_read": True,
        }
    ]
    assert [f"  {line}" for line in log["next_start"]] == lines[-len(log["next_start"]) :]
    assert (log["leader_epochs"], log["set_aside"], log["deleted"]) == (None, [], [])
