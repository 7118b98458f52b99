"""What a start makes of snapshots, epochs and votes that do not fit the log."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from local_log.errors import LoadStopped
from metadata_topic.image.model import TopicImage
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.image.sorted_map import SortedMap
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.driver.quorum_state_file import parse_quorum_state
from metadata_topic.quorum.errors import DamagedMetadataError, ForeignSnapshotError
from metadata_topic.quorum.log.flushed_end_file import FLUSHED_END
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.quorum.snapshot.snapshots import (
    CorruptSnapshotError,
    SnapshotFiles,
    SnapshotId,
    read_snapshot,
    snapshot_chunks,
)
from metadata_topic.quorum.start.recovery import read_directory, repair
from metadata_topic.raft.messages import BatchFacts
from metadata_topic.raft.voter_history import QuorumFacts, VoterHistory
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from runtime.disk import Disk
from tests.support.sim.rng import SeededRng
from tests.support.worlds.interrupted_install import leave_install, note_install
from tests.support.worlds.metadata_home import DIRECTORY_ID, Home, topics
from tests.support.worlds.waiting import until

VOTERS = VoterSet((Voter(ReplicaKey(1, DIRECTORY_ID), (VoterEndpoint("C", "host", 9093),)),))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def three_topics(node: MetadataNode) -> None:
    for name in ("a", "b", "c"):
        await node.submit(topics(name))


def fetched(
    home: Home,
    snapshot_id: SnapshotId,
    *names: str,
    cluster_id: str | None = None,
    is_noted: bool = True,
) -> None:
    """A snapshot as another leader would have sent it, about to replace the log."""
    records: list[MetadataRecord] = [
        make("FeatureLevelRecord", name="metadata.version", feature_level=30)
    ]
    records += [make("TopicRecord", name=name, topic_id=name.encode() * 16) for name in names]
    chunks = snapshot_chunks(
        records,
        snapshot_id=snapshot_id,
        last_contained_timestamp_ms=1,
        now_ms=lambda: 1,
        kraft_version=1,
        voters=VOTERS,
        cluster_id=cluster_id,
    )
    if is_noted:
        leave_install(home.metadata, snapshot_id, chunks)
    else:
        SnapshotFiles(home.metadata, Disk(), SeededRng(1)).write(snapshot_id, chunks)


def test_a_snapshot_of_a_newer_epoch_replaces_the_log(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    """The log's tail lost an election: its records were never committed (KIP-630)."""
    home.life(three_topics)
    fetched(home, SnapshotId(8, 3), "x", "y")
    for epoch in (4, 5):
        node = home.life()
        assert ("a snapshot replaces the log" in caplog.text) is (epoch == 4)
        caplog.clear()
        assert set(node.image.topics_by_name) == {"x", "y"}
        assert node.leader_epoch == epoch
        assert node.log_start_offset == 8
    assert not home.log.exists()


def test_a_start_that_is_refused_names_the_snapshots_that_it_cannot_use(home: Home) -> None:
    home.life(three_topics)
    fetched(home, SnapshotId(1_000, 9), "x", cluster_id="somebody else's", is_noted=False)
    with pytest.raises(DamagedMetadataError, match="snapshot of cluster somebody else's"):
        home.life()


def test_a_snapshot_of_the_same_epoch_leaves_the_longer_log(home: Home) -> None:
    home.life(three_topics)
    fetched(home, SnapshotId(8, 1), "a", is_noted=False)
    assert set(home.life().image.topics_by_name) == {"a", "b", "c"}


def test_a_fetched_snapshot_ahead_of_a_whole_log_replaces_it(home: Home) -> None:
    home.life(three_topics)
    fetched(home, SnapshotId(100, 1), "x")
    node = home.life()
    assert set(node.image.topics_by_name) == {"x"}
    assert node.log_start_offset == 100


def test_a_replacement_that_was_under_way_is_finished(home: Home) -> None:
    """All segments are gone, the new one is not there yet; the note says why."""
    home.life(three_topics)
    fetched(home, SnapshotId(100, 3), "x")
    for path in home.metadata.iterdir():
        if path.name.startswith("0") and not path.name.endswith(".checkpoint"):
            path.unlink()
    assert set(home.life().image.topics_by_name) == {"x"}
    assert b"restart -1" in (home.metadata / FLUSHED_END).read_bytes()
    assert home.life().leader_epoch == 5


def test_a_damaged_log_is_not_replaced_by_a_newer_snapshot_behind_it(home: Home) -> None:
    home.life(three_topics)
    fetched(home, SnapshotId(100, 1), "x", is_noted=False)
    home.log.write_bytes(home.log.read_bytes()[:-1])
    with pytest.raises(DamagedMetadataError):
        home.life()


@pytest.mark.parametrize(
    "snapshot_id", [SnapshotId(100, 1), SnapshotId(100, 3), SnapshotId(8, 3)], ids=str
)
@pytest.mark.parametrize("intent", [None, SnapshotId(100, 2), SnapshotId(99, 3)], ids=str)
def test_a_snapshot_that_nobody_fetched_does_not_replace_a_log(
    home: Home, snapshot_id: SnapshotId, intent: SnapshotId | None
) -> None:
    """A person put it there: without a cluster id it may be that of another life."""
    home.life(three_topics)
    fetched(home, snapshot_id, "x", is_noted=False)
    if intent is not None:
        note_install(home.metadata, intent)
    before = home.files()
    with pytest.raises(ForeignSnapshotError) as refused:
        home.life()
    assert home.files() == before
    assert str(home.metadata / snapshot_id.file_name) in str(refused.value)
    assert str(home.log) in str(refused.value)
    assert f"Move {snapshot_id.file_name} out of the directory" in str(refused.value)
    (home.metadata / snapshot_id.file_name).unlink()
    assert set(home.life().image.topics_by_name) == {"a", "b", "c"}


def test_nor_does_it_replace_a_log_that_begins_at_a_snapshot_and_is_empty(home: Home) -> None:
    home.life(three_topics)
    fetched(home, SnapshotId(100, 3), "x")
    files = SnapshotFiles(home.metadata, Disk(), SeededRng(1))
    found = read_directory(home.metadata, files=files, disk=Disk())
    opened = repair(
        found,
        files=files,
        config=MetadataLogConfig(),
        disk=Disk(),
        clock=home.ports.clock,
    )
    assert opened.start_offset == opened.end_offset == 100
    fetched(home, SnapshotId(200, 3), "y", is_noted=False)
    with pytest.raises(ForeignSnapshotError, match=r"ends at offset 100, .*100\.log"):
        home.life()


def test_a_node_without_a_log_may_be_given_a_snapshot_to_begin_with(home: Home) -> None:
    files = SnapshotFiles(home.metadata, Disk(), SeededRng(1))
    for _ in range(2):
        found = read_directory(home.metadata, files=files, disk=Disk())
        config = MetadataLogConfig()
        opened = repair(found, files=files, config=config, disk=Disk(), clock=home.ports.clock)
        opened.close()
        if opened.end_offset == 0:
            fetched(home, SnapshotId(100, 3), "x", is_noted=False)
    assert set(home.life().image.topics_by_name) == {"x"}


@pytest.mark.parametrize("loss", ["removed", "of an hour ago", "of kafka"])
def test_a_lost_or_old_vote_costs_a_single_voter_nothing(home: Home, loss: str) -> None:
    path = home.metadata / "quorum-state"
    home.life(three_topics)
    old = path.read_bytes()
    for _ in range(3):
        home.life()
    if loss == "removed":
        path.unlink()
    elif loss == "of kafka":
        path.write_bytes(
            b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,'
            b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
        )
    else:
        path.write_bytes(old)
    assert home.life().leader_epoch == 5
    assert parse_quorum_state(path.read_bytes()).epoch == 5


def test_the_next_epoch_is_above_damaged_snapshots_and_torn_batches(home: Home) -> None:
    home.life(three_topics)
    fetched(home, SnapshotId(9, 1), "a")
    (home.metadata / SnapshotId(8, 40).file_name).write_bytes(b"damaged")
    (home.metadata / "quorum-state").unlink()
    assert home.life().leader_epoch == 41


def test_voters_hold_from_their_own_offset_on_and_are_taken_back() -> None:
    other = VoterSet((Voter(ReplicaKey(2, b"o" * 16)),))
    history = VoterHistory([(10, QuorumFacts(1, VOTERS))])
    history.note(BatchFacts(10, 15, 1))
    history.note(BatchFacts(15, 20, 1, kraft_version=2))
    history.note(BatchFacts(20, 30, 1, voters=other))
    assert history.at(10) == history.at(19) == QuorumFacts(1, VOTERS)
    assert history.at(20) == history.at(29) == QuorumFacts(2, VOTERS)
    assert history.at(30) == history.latest == QuorumFacts(2, other, in_log=True)
    history.truncate_to(29)
    assert history.latest == QuorumFacts(2, VOTERS)
    history.truncate_to(0)
    assert history.latest == QuorumFacts(1, VOTERS)


def test_a_snapshot_stores_the_quorum_of_its_own_offset(home: Home) -> None:
    async def work(node: MetadataNode) -> None:
        await node.submit(topics("a"))
        making = asyncio.ensure_future(node.snapshot())
        end = node.log_end_offset
        node._replica.history.note(BatchFacts(end, end + 1, 1, kraft_version=2))
        made = await making
        assert made is not None
        written = read_snapshot((home.metadata / made.file_name).read_bytes())
        assert written.kraft_version == 1
        assert written.voters is not None
        assert written.voters.voters[0].key == ReplicaKey(1, DIRECTORY_ID)

    home.life(work)


def test_a_snapshot_of_another_cluster_is_put_aside(home: Home, tmp_path: Path) -> None:
    async def snapshot_of_a(node: MetadataNode) -> None:
        await node.submit(topics("a"))
        assert await node.snapshot() is not None

    async def snapshot_of_x(node: MetadataNode) -> None:
        await node.submit(topics("x"))
        assert await node.snapshot() is not None

    stranger = Home(tmp_path / "stranger", cluster_id="another")
    home.life(snapshot_of_a)
    stranger.life(snapshot_of_x)
    [mine, theirs] = [max(one.metadata.glob("*.checkpoint")) for one in (home, stranger)]
    mine.write_bytes(theirs.read_bytes())
    assert set(home.life().image.topics_by_name) == {"a"}
    assert mine.with_name(f"{mine.name}.corrupt").read_bytes() == theirs.read_bytes()


def test_two_writers_of_one_snapshot_do_not_share_a_file(home: Home) -> None:
    files = SnapshotFiles(home.path, Disk(), SeededRng(1))
    chunks = [b"one", b"two"]

    def interrupted() -> object:
        yield b"torn"
        assert files.write(SnapshotId(7, 1), chunks) == 6
        yield b"end"

    files.write(SnapshotId(7, 1), interrupted())  # type: ignore[arg-type]
    assert (home.path / SnapshotId(7, 1).file_name).read_bytes() == b"tornend"
    parts = [home.path / f"{n}.checkpoint.part" for n in ("00000000000000000007-0000000001-ab", 1)]
    for part in parts:
        part.touch()
    files.remove_leftovers()
    assert not any(part.exists() for part in parts)


def test_a_snapshot_that_could_not_be_read_back_gets_no_name(home: Home) -> None:
    async def work(node: MetadataNode) -> None:
        await node.submit(topics("a"))
        topic = TopicImage("x" * 40_000, b"x" * 16, {})
        poisoned = replace(node.image, topics_by_id=SortedMap.of({topic.id: topic}))
        made: list[SnapshotId | None] = []
        node._replica.snapshotter.make(poisoned, made.append)
        await until(lambda: made == [None])
        assert not list(home.metadata.glob("*.part"))
        assert await node.snapshot() is not None

    home.life(work)
    assert set(home.life().image.topics_by_name) == {"a"}


def test_the_parts_of_a_large_snapshot_are_batches_that_kafka_takes() -> None:
    values = [
        make("ConfigRecord", resource_type=2, resource_name="t", name=f"k{n}", value="x" * 32_000)
        for n in range(600)
    ]
    chunks = list(
        snapshot_chunks(
            values,
            snapshot_id=SnapshotId(1, 1),
            last_contained_timestamp_ms=1,
            now_ms=lambda: 1,
        )
    )
    assert max(len(chunk) for chunk in chunks) <= 8 << 20
    assert len(read_snapshot(b"".join(chunks)).records) == 600
    with pytest.raises(CorruptSnapshotError):
        read_snapshot(b"".join(chunks)[:-1])


async def test_reading_the_log_ends_between_batches_where_it_is_asked_to(home: Home) -> None:
    async def create(node: MetadataNode) -> None:
        for number in range(5):
            await node.submit(topics(f"t{number}"))

    await home.lived(create)
    before = home.files()
    asked: list[int] = []

    def check_stop() -> None:
        asked.append(len(asked))
        if len(asked) > 5:
            raise LoadStopped("enough")

    node = home.node()
    with pytest.raises(LoadStopped):
        node.open(check_stop=check_stop)
    await node.close()
    assert len(asked) == 6
    assert home.files() == before
    assert len((await home.lived()).image.topics_by_name) == 5
