"""What a snapshotter does where something is in its way: a failure, an end, a snapshot in place."""

from pathlib import Path
from typing import Any

import pytest

from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.quorum.snapshot.snapshotter import RETRY_MS
from metadata_topic.raft.messages import SnapshotId
from runtime.disk import Disk
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.node_home import Home, a_topic
from tests.support.worlds.pools import HeldPool, turns
from tests.support.worlds.replica_quorum import ReplicaNode, ReplicaQuorum


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def created(node: MetadataNode, name: str) -> None:
    await node.submit(a_topic(name, name.encode().ljust(16, b"-")))
    await turns(20)


def test_a_snapshot_asked_for_twice_at_one_offset_is_written_once(home: Home) -> None:
    async def work(node: MetadataNode) -> None:
        first = await node.snapshot()
        assert first is not None
        path = home.metadata / first.file_name
        written = path.stat().st_ino
        assert await node.snapshot() == first
        assert path.stat().st_ino == written

    home.with_node(work)


def test_after_a_failure_the_next_comes_by_itself_but_not_at_once(home: Home) -> None:
    """What led to the one that failed still counts; the disk has time to be repaired."""

    async def work(node: MetadataNode) -> None:
        home.disk.fail(["open_append"], path_part=".part")
        for n in range(20):
            await created(node, f"t{n}")
        assert node.snapshot_problems()
        home.disk.heal()
        await created(node, "soon")
        assert node.latest_snapshot_id == (0, 0)
        home.ports.scheduler.advance(RETRY_MS)
        await created(node, "later")
        assert node.latest_snapshot_id != (0, 0)

    home.with_node(work, MetadataLogConfig(max_record_bytes_between_snapshots=1_500))


def active(
    path: Path, *, disk: Disk | None = None, pool: HeldPool | None = None
) -> tuple[ReplicaQuorum, ReplicaNode]:
    """A sole voter that keeps one snapshot; `pool` writes it."""
    quorum = ReplicaQuorum(path, [1])
    quorum.config = MetadataLogConfig(max_retention_bytes=1)
    quorum.members[1].disk = disk or Disk()
    quorum.members[1].background = pool
    quorum.start()
    return quorum, quorum.elect_active()


def test_the_flushed_end_is_noted_for_good_before_a_snapshot_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves a snapshot beyond the note, as a fetched one is."""
    quorum, node = active(tmp_path)
    quorum.create(node, "a")
    note, files = node.opened.log.note, type(node.opened.files)
    write, is_unsynced = files.write, [note.has_unsynced_lines]

    def watched(*arguments: Any) -> int:
        is_unsynced.append(note.has_unsynced_lines)
        return write(*arguments)

    monkeypatch.setattr(files, "write", watched)
    quorum.snapshot(node)
    assert is_unsynced == [True, False]


def test_after_a_clean_up_that_failed_the_log_can_be_cut(tmp_path: Path) -> None:
    disk = FaultyDisk()
    quorum, node = active(tmp_path, disk=disk)
    quorum.create(node, "a")
    quorum.snapshot(node)
    disk.fail(["unlink"], path_part=".checkpoint")
    quorum.create(node, "b")
    quorum.snapshot(node)
    assert "cannot be deleted" in node.replica.snapshotter.problem
    cut: list[bool] = []
    node.opened.log.gate.shut(lambda: cut.append(True))
    assert cut


def test_at_the_end_all_that_asked_for_a_snapshot_are_answered(tmp_path: Path) -> None:
    pool = HeldPool(is_holding=False)
    quorum, node = active(tmp_path, pool=pool)
    quorum.create(node, "a")
    snapshotter, image = node.replica.snapshotter, node.replica.image
    answers: list[SnapshotId | None] = []
    idle: list[bool] = []
    pool.is_holding = True
    for _ in range(3):
        snapshotter.make(image, answers.append)
    quorum.advance(1_000)
    assert pool.held
    snapshotter.close()
    snapshotter.make(image, answers.append)
    snapshotter.when_idle(lambda: idle.append(True))
    assert (answers, idle) == ([None], [])
    pool.stop_holding()
    quorum.advance(1_000)
    assert (answers, idle) == ([None] * 4, [True])
    assert [one for one in node.opened.files.ids() if one.end_offset > 0] == []
