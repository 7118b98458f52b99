"""Damage of what was flushed is refused with the disk as it was; only a torn tail is cut."""

import contextlib
from pathlib import Path

import pytest
from crc32c import crc32c

from kafka_protocol.errors import KafkaError
from kafka_protocol.records.batch import BatchHeader, iter_batches
from metadata_topic.image.records import make
from metadata_topic.quorum.active.submit import DecisionTimedOut
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.errors import (
    MissingMetadataError,
    UnusableMetadataError,
)
from metadata_topic.quorum.log.batches import note_flushed_end
from metadata_topic.quorum.log.flushed_end_file import (
    FLUSHED_END,
    FlushedEnd,
    FlushedEndFile,
    dump_flushed_end,
    dump_line,
    parse_flushed_end,
)
from metadata_topic.quorum.node import MetadataNode, MetadataUnavailable
from metadata_topic.quorum.snapshot.snapshots import SnapshotId, snapshot_chunks
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from runtime.disk import Disk
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.interrupted_install import leave_install
from tests.support.worlds.metadata_home import DIRECTORY_ID, Home, forget_lines, topics

EPOCH_BYTES = range(12, 16)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def three_topics(node: MetadataNode) -> None:
    for name in ("a", "b", "c"):
        await node.submit(topics(name))


def batches(path: Path) -> list[tuple[int, BatchHeader]]:
    return list(iter_batches(path.read_bytes()))


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def refused(home: Home) -> str:
    """Start, which must be refused, twice, and must not change a byte; the reason."""
    before = home.files()
    for _ in range(2):
        with pytest.raises(UnusableMetadataError) as caught:
            home.life()
        assert home.files() == before
    return str(caught.value)


def test_a_flipped_bit_anywhere_is_refused_after_a_clean_stop(home: Home) -> None:
    home.life(three_topics)
    sound = home.log.read_bytes()
    last, _ = batches(home.log)[-1]
    for position in (*range(0, last, 5), *range(last, len(sound))):
        if position - last in EPOCH_BYTES:
            continue  # not in the checksum, and nothing follows that could contradict
        home.log.write_bytes(sound)
        flip(home.log, position, position % 8)
        assert "000.log is damaged at position" in refused(home)
    home.log.write_bytes(sound)
    assert set(home.life().image.topics_by_name) == {"a", "b", "c"}


def test_after_a_kill_no_flushed_batch_can_be_a_torn_tail(home: Home) -> None:
    home.life(three_topics, killed=True)
    sound = home.log.read_bytes()
    for position in range(0, len(sound), 7):
        flip(home.log, position, position % 8)
        assert "000.log is damaged at position" in refused(home)
        home.log.write_bytes(sound)


def test_after_a_power_cut_only_the_last_batch_can_be_a_torn_tail(home: Home) -> None:
    home.life(three_topics, killed=True)
    forget_lines(home.metadata)
    sound, found = home.files(), batches(home.log)
    last, _ = found[-1]
    for position in range(0, last, 7):
        flip(home.log, position, position % 8)
        assert "000.log is damaged at position" in refused(home)
        home.log.write_bytes(sound["00000000000000000000.log"])
    flip(home.log, last + 40)
    assert set(home.life().image.topics_by_name) == {"a", "b"}


def test_the_message_names_file_position_offset_and_the_remedy(home: Home) -> None:
    async def work(node: MetadataNode) -> None:
        await three_topics(node)
        await node.snapshot()

    node = home.life(work)
    position, header = batches(home.log)[3]
    flip(home.log, position + 70)
    message = refused(home)
    assert f"{home.log} is damaged at position {position} (offset {header.base_offset})" in message
    assert node.latest_snapshot_id is not None
    assert node.latest_snapshot_id.file_name in message
    assert "Restore the file" in message


@pytest.mark.parametrize("tail", [b"\0" * 5_000, b"\xff" * 5_000, b"torn", b""])
def test_a_tail_that_was_never_flushed_is_cut(home: Home, tail: bytes) -> None:
    home.life(three_topics, killed=True)
    home.log.write_bytes(home.log.read_bytes() + tail)
    assert set(home.life().image.topics_by_name) == {"a", "b", "c"}
    assert set(home.life().image.topics_by_name) == {"a", "b", "c"}


def test_a_torn_large_change_is_cut_although_whole_batches_follow_it(home: Home) -> None:
    """All batches of one change are begun at the same flushed end: they prove nothing."""
    home.config = MetadataLogConfig(max_batch_bytes=2_000)

    async def work(node: MetadataNode) -> None:
        await three_topics(node)
        await node.submit(topics(*(f"t{n}" for n in range(200))))

    home.life(work, killed=True)
    forget_lines(home.metadata)
    position, _ = batches(home.log)[-4]
    data = bytearray(home.log.read_bytes())
    data[position + 61 : position + 600] = bytes(539)
    home.log.write_bytes(data)
    assert set(home.life().image.topics_by_name) == {"a", "b", "c"}


def test_the_end_of_an_aborted_transaction_says_what_was_flushed_before_it(home: Home) -> None:
    home.config = MetadataLogConfig(max_batch_bytes=2_000)

    async def large(node: MetadataNode) -> None:
        await node.submit(topics(*(f"t{n}" for n in range(200))))

    home.life(large, killed=True)
    forget_lines(home.metadata)
    end_of_transaction, _ = batches(home.log)[-1]
    home.log.write_bytes(home.log.read_bytes()[:end_of_transaction])
    count = len(batches(home.log))
    home.life(killed=True)
    forget_lines(home.metadata)
    (leader_change, _), (position, abort) = batches(home.log)[count : count + 2]
    assert abort.record_count == 1
    home.log.write_bytes(home.log.read_bytes()[: position + abort.size_bytes])
    (home.metadata / FLUSHED_END).unlink()
    flip(home.log, leader_change + 40)
    assert f"the batch of offset {abort.base_offset}" in refused(home)


def test_what_is_below_a_snapshot_was_flushed(home: Home) -> None:
    async def work(node: MetadataNode) -> None:
        await three_topics(node)
        await node.snapshot()

    home.life(work, killed=True)
    (home.metadata / FLUSHED_END).unlink()
    log = home.log.read_bytes()
    home.log.write_bytes(log[:-1])
    assert "newest snapshot's end" in refused(home)
    last, _ = batches(home.log)[-1]
    home.log.write_bytes(log[:last])
    assert "newest snapshot's end" in refused(home)


def test_what_was_noted_as_flushed_must_be_there(home: Home) -> None:
    home.life(three_topics)
    last, _ = batches(home.log)[-1]
    home.log.write_bytes(home.log.read_bytes()[:last])
    assert FLUSHED_END in refused(home)


@pytest.mark.parametrize("note", [None, b"", b"tidemark-flushed-end 1\n", b"x" * 100])
def test_a_missing_or_damaged_note_proves_nothing(home: Home, note: bytes | None) -> None:
    home.life(three_topics)
    path = home.metadata / FLUSHED_END
    if note is None:
        path.unlink()
    else:
        path.write_bytes(note)
    assert set(home.life().image.topics_by_name) == {"a", "b", "c"}
    assert parse_flushed_end(path.read_bytes()) is not None


def test_every_flipped_bit_of_the_note_is_noticed() -> None:
    data = dump_flushed_end(FlushedEnd(4711, led_epoch=7))
    for end in (FlushedEnd(4711, led_epoch=7), FlushedEnd(1, SnapshotId(2, 3))):
        assert parse_flushed_end(dump_flushed_end(end)) == end
    for position in range(len(data)):
        for bit in range(8):
            bad = bytearray(data)
            bad[position] ^= 1 << bit
            assert parse_flushed_end(bytes(bad)) is None


def test_of_the_lines_of_the_note_the_sound_ones_count() -> None:
    head = dump_flushed_end(FlushedEnd(10, led_epoch=7))
    lines = [dump_line(offset, crc32c(head)) for offset in (12, 15, 19)]
    whole = head + b"".join(lines)
    for size in range(len(head), len(whole) + 1):
        written = (size - len(head)) // len(lines[0])
        end = (10, 12, 15, 19)[written]
        for torn in (whole[:size], whole[:size] + bytes(len(whole) - size)):
            assert parse_flushed_end(torn) == FlushedEnd(end, led_epoch=7), (size, torn)
    for position in range(len(head), len(whole)):
        for bit in range(8):
            bad = bytearray(whole)
            bad[position] ^= 1 << bit
            found = parse_flushed_end(bytes(bad))
            assert found is not None
            assert found.offset in {15, 19}, "never more than was said"
    lost = head + bytes(len(lines[0])) + lines[1]
    assert parse_flushed_end(lost) == FlushedEnd(15, led_epoch=7)
    assert parse_flushed_end(head + dump_line(99, 1)) == FlushedEnd(10, led_epoch=7)


def test_a_note_of_a_later_version_proves_nothing_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"tidemark-flushed-end 4\nflushed 10\nrestart -1 -1\nled 7\n"
    path = tmp_path / FLUSHED_END
    path.write_bytes(head + f"crc {crc32c(head):08x}\n".encode())
    assert FlushedEndFile(tmp_path, Disk()).read() is None
    assert f"of another version, and proves nothing: {path}" in caplog.text


SMALL = MetadataLogConfig(segment_bytes=400, max_retention_bytes=-1)


@pytest.mark.parametrize("has_note", [True, False])
@pytest.mark.parametrize("harm", ["flip", "cut", "cut a batch", "remove"])
def test_a_closed_segment_has_no_torn_tail(home: Home, harm: str, has_note: bool) -> None:
    home.config = SMALL

    async def work(node: MetadataNode) -> None:
        for n in range(20):
            await node.submit(topics(f"t{n}"))

    home.life(work, killed=True)
    closed = sorted(home.metadata.glob("*.log"))[-2]
    if not has_note:
        (home.metadata / FLUSHED_END).unlink()
    last, _ = batches(closed)[-1]
    if harm == "flip":
        flip(closed, last + 70)
    elif harm == "remove":
        closed.unlink()
    else:
        closed.write_bytes(closed.read_bytes()[: last if harm == "cut a batch" else -1])
    assert "closed segment" in refused(home)


def test_a_lost_log_is_not_begun_anew(home: Home) -> None:
    home.life(three_topics, killed=True)
    for path in home.metadata.iterdir():
        if path.name.startswith("0") and not path.name.endswith(".checkpoint"):
            path.unlink()
    assert "all segments of the metadata log are gone" in refused(home)


def test_a_log_cut_to_nothing_is_not_begun_anew(home: Home) -> None:
    home.life(three_topics, killed=True)
    home.log.write_bytes(b"")
    assert "damaged at position 0 (offset 0)" in refused(home)


def test_a_snapshot_without_its_log_is_refused_and_the_remedy_works(home: Home) -> None:
    """docs/metadata-log.md says how to continue from a snapshot."""

    async def work(node: MetadataNode) -> None:
        await three_topics(node)
        await node.snapshot()
        await node.submit(topics("d"))

    node = home.life(work)
    home.log.unlink()
    assert node.latest_snapshot_id is not None
    assert node.latest_snapshot_id.file_name in refused(home)
    (home.metadata / FLUSHED_END).unlink()
    (home.metadata / f"{node.latest_snapshot_id.end_offset:020d}.log").touch()
    assert set(home.life().image.topics_by_name) == {"a", "b", "c"}
    assert set(home.life().image.topics_by_name) == {"a", "b", "c"}


def test_a_gap_at_the_beginning_is_refused(home: Home) -> None:
    home.config = SMALL

    async def work(node: MetadataNode) -> None:
        for n in range(20):
            await node.submit(topics(f"t{n}"))

    home.life(work)
    home.log.unlink()
    with pytest.raises(MissingMetadataError, match="the records between are lost"):
        home.life()
    refused(home)


def test_a_damaged_bootstrap_file_counts_at_the_first_start_only(home: Home) -> None:
    bootstrap = home.path / "bootstrap.checkpoint"
    sound = bootstrap.read_bytes()
    flip(bootstrap, 100)
    with pytest.raises(UnusableMetadataError, match=r"bootstrap\.checkpoint"):
        home.life()
    bootstrap.write_bytes(sound)
    home.life(three_topics)
    bootstrap.unlink()
    assert set(home.life().image.topics_by_name) == {"a", "b", "c"}


def test_a_damaged_batch_of_kafka_proves_nothing_by_itself(home: Home) -> None:
    """Its batches do not say what was flushed; without any other sign the tail counts as torn."""
    home.life(three_topics, killed=True)
    (home.metadata / FLUSHED_END).unlink()
    data = bytearray()
    for position, header in batches(home.log):
        batch = bytearray(home.log.read_bytes()[position : position + header.size_bytes])
        as_kafka(batch)
        data += batch
    home.log.write_bytes(data)
    position, _ = batches(home.log)[-2]
    flip(home.log, position + 70)
    assert set(home.life().image.topics_by_name) == {"a"}


def as_kafka(batch: bytearray) -> None:
    from kafka_protocol.records.batch import write_crc

    batch[53:57] = b"\xff" * 4
    write_crc(batch, 0, len(batch))


def test_a_note_of_a_flushed_end_beyond_the_batch_is_our_own_mistake() -> None:
    from metadata_topic.quorum.log.batches import value_batch

    batch = value_batch([b"x"], base_offset=5, epoch=1, timestamp_ms=1)
    with pytest.raises(AssertionError, match="beyond the batch"):
        note_flushed_end(batch, 6)


def test_segments_that_came_back_from_their_deletion_do_not_disturb(home: Home) -> None:
    """Names are deleted one by one; a power cut may bring some of them back."""
    home.config = MetadataLogConfig(segment_bytes=400, max_retention_bytes=1)
    kept: dict[str, bytes] = {}

    async def work(node: MetadataNode) -> None:
        for n in range(20):
            await node.submit(topics(f"t{n}"))
        kept.update(home.files())
        await node.snapshot()
        await node.submit(topics("last"))
        await node.snapshot()

    home.life(work, killed=True)
    gone = sorted(n for n in kept if n.endswith(".log") and not (home.metadata / n).exists())
    assert len(gone) >= 3
    (home.metadata / gone[0]).write_bytes(kept[gone[0]])
    names = {f"t{n}" for n in range(20)} | {"last"}
    assert set(home.life().image.topics_by_name) == names
    assert not (home.metadata / gone[0]).exists()
    assert set(home.life().image.topics_by_name) == names


def test_a_log_that_ends_below_a_snapshot_of_our_own_is_refused(home: Home) -> None:
    """The flushed end was noted before the snapshot: a fetched one would be ahead of the note."""

    async def work(node: MetadataNode) -> None:
        await three_topics(node)
        await node.snapshot()

    home.life(work, killed=True)
    last, _ = batches(home.log)[-1]
    home.log.write_bytes(home.log.read_bytes()[:last])
    assert "newest snapshot's end" in refused(home)


def test_a_refused_start_keeps_leftovers_and_damaged_snapshots(home: Home) -> None:
    async def work(node: MetadataNode) -> None:
        await node.submit(topics("a"))
        await node.snapshot()
        await node.submit(topics("b"))

    node = home.life(work)
    assert node.latest_snapshot_id is not None
    (home.metadata / f"{node.latest_snapshot_id.file_name}.part").touch()
    (home.metadata / node.latest_snapshot_id.file_name).write_bytes(b"damaged")
    sound = home.log.read_bytes()
    flip(home.log, len(sound) - 3)
    refused(home)
    home.log.write_bytes(sound)
    assert set(home.life().image.topics_by_name) == {"a", "b"}
    assert not list(home.metadata.glob("*.part"))
    assert list(home.metadata.glob("*.corrupt"))


@pytest.mark.parametrize("after", range(8))
def test_a_note_that_cannot_be_written_costs_nothing_that_was_answered(
    home: Home, after: int
) -> None:
    """At a start, a roll, a snapshot, a stop: whichever it is, the next start has it all."""
    home.config = MetadataLogConfig(segment_bytes=400, max_retention_bytes=-1)
    disk = home.disk = FaultyDisk()
    disk.fail(["rename"], path_part=FLUSHED_END, after=after)
    answered = set()

    async def work(node: MetadataNode) -> None:
        for n in range(12):
            await node.submit(topics(f"t{n}"))
            answered.add(f"t{n}")
            if n % 5 == 0:
                await node.snapshot()

    with contextlib.suppress(OSError, MetadataUnavailable, DecisionTimedOut):
        home.life(work)
    disk.heal()
    for _ in range(2):
        assert answered <= set(home.life().image.topics_by_name)


@pytest.mark.parametrize("operation", ["rename", "fsync", "open_append"])
@pytest.mark.parametrize("after", range(6))
def test_a_replacement_on_a_failing_disk_is_finished_later(
    home: Home, operation: str, after: int
) -> None:
    home.life(three_topics)
    voter = Voter(ReplicaKey(1, DIRECTORY_ID), (VoterEndpoint("C", "host", 9093),))
    chunks = snapshot_chunks(
        [make("TopicRecord", name="theirs", topic_id=b"t" * 16)],
        snapshot_id=SnapshotId(100, 3),
        last_contained_timestamp_ms=1,
        now_ms=lambda: 1,
        kraft_version=1,
        voters=VoterSet((voter,)),
    )
    leave_install(home.metadata, SnapshotId(100, 3), chunks)
    disk = home.disk = FaultyDisk()
    disk.fail([operation], path_part="__cluster_metadata", after=after)
    with contextlib.suppress(OSError, KafkaError):
        home.life()
    disk.heal()
    assert set(home.life().image.topics_by_name) == {"theirs"}
