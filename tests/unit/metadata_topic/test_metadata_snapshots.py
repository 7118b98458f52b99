import struct
from itertools import pairwise
from pathlib import Path

import pytest

from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.control import control_batch, snapshot_footer, snapshot_header
from kafka_protocol.records.records import build_batch
from metadata_topic.image.records import make
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.snapshot.rules import (
    KeptSnapshot,
    SnapshotFacts,
    is_snapshot_due,
    snapshots_to_delete,
)
from metadata_topic.quorum.snapshot.snapshots import (
    CorruptSnapshotError,
    SnapshotFiles,
    SnapshotId,
    read_snapshot,
    snapshot_chunks,
)
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from runtime.disk import Disk
from tests.support.sim.rng import SeededRng

VOTERS = VoterSet((Voter(ReplicaKey(1, b"d" * 16), (VoterEndpoint("C", "host", 9093),)),))
ID = SnapshotId(1234, 5)


def chunks(count: int = 3, *, cluster_id: str | None = None) -> list[bytearray]:
    records = [make("TopicRecord", name=f"t{n}", topic_id=n.to_bytes(16)) for n in range(count)]
    return list(
        snapshot_chunks(
            records,
            snapshot_id=ID,
            last_contained_timestamp_ms=77,
            now_ms=lambda: 99,
            kraft_version=1,
            voters=VOTERS,
            cluster_id=cluster_id,
        )
    )


def test_a_snapshot_is_read_as_it_was_written() -> None:
    snapshot = read_snapshot(b"".join(chunks(1200)))
    assert len(snapshot.records) == 1200
    assert snapshot.last_contained_timestamp_ms == 77
    assert (snapshot.kraft_version, snapshot.voters) == (1, VOTERS)


def test_a_large_snapshot_comes_in_slices() -> None:
    pieces = chunks(1200)
    assert len([piece for piece in pieces if piece]) == 2 + 3
    assert len([piece for piece in pieces if not piece]) == 12  # after each 100 records


def test_a_snapshot_cut_anywhere_does_not_count() -> None:
    data = b"".join(chunks())
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshotError):
            read_snapshot(data[:size])


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    """But for the leader epoch, which is not under the checksum and on which nothing depends."""
    data = b"".join(chunks())
    starts = [position for position, _ in iter_batches(data)]
    for place in range(len(data)):
        inside = place - max(start for start in starts if start <= place)
        broken = bytearray(data)
        broken[place] ^= 1
        if not 12 <= inside < 16:
            with pytest.raises(CorruptSnapshotError):
                read_snapshot(bytes(broken))


def test_batches_that_do_not_make_one_snapshot_are_refused() -> None:
    one, other = b"".join(chunks(2)), b"".join(chunks(2, cluster_id="x"))
    pieces = [one[start:end] for start, end in pairwise([*_starts(one), len(one)])]
    head, body, foot = pieces
    for wrong, why in (
        (one + other, "offset 0 where"),
        (one + foot, "offset 5 where 6"),
        (head + foot, "offset 5 where 3"),
        (body + foot, "offset 3 where 0"),
        (head, "ends with a footer"),
        (head + body, "ends with a footer"),
        (b"", "ends with a footer"),
    ):
        with pytest.raises(CorruptSnapshotError, match=why):
            read_snapshot(wrong)
    kinds = (snapshot_footer(), snapshot_header(1))
    for first, second in (kinds, kinds[::-1]):
        a = control_batch([first], base_offset=0, leader_epoch=1, timestamp_ms=1)
        b = control_batch([second, first], base_offset=1, leader_epoch=1, timestamp_ms=1)
        with pytest.raises(CorruptSnapshotError):
            read_snapshot(bytes(a + b))


def _starts(data: bytes) -> list[int]:
    return [position for position, _ in iter_batches(data)]


def test_control_records_of_unknown_types_are_skipped() -> None:
    record = (1, struct.pack(">hh", 0, 77), b"what is this", ())
    strange = build_batch([record], base_offset=3, leader_epoch=5, is_control=True)
    head = chunks(0)[0]
    foot = control_batch([snapshot_footer()], base_offset=4, leader_epoch=5, timestamp_ms=1)
    assert read_snapshot(bytes(head + strange + foot)).voters == VOTERS


def test_values_are_divided_into_batches_that_continue_each_other() -> None:
    data = b"".join(chunks(1200))
    headers = [header for _, header in iter_batches(data)]
    assert len(headers) == 5
    for before, after in pairwise(headers):
        assert before.next_offset == after.base_offset
    assert all(header.partition_leader_epoch == ID.epoch for header in headers)


def test_names_are_kafkas_and_foreign_ones_are_ignored(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path, Disk(), SeededRng(1))
    assert ID.file_name == "00000000000000001234-0000000005.checkpoint"
    files.write(ID, chunks())
    files.write(SnapshotId(7, 1), chunks())
    (tmp_path / "00000000000000009999-0000000005.checkpoint.part").touch()
    (tmp_path / "bootstrap.checkpoint").touch()
    (tmp_path / "00000000000000000000.log").touch()
    assert files.ids() == [SnapshotId(7, 1), ID]
    files.remove_leftovers()
    assert not list(tmp_path.glob("*.part"))
    files.delete(ID)
    assert files.ids() == [SnapshotId(7, 1)]


def test_a_snapshot_of_another_cluster_is_damaged_and_one_of_kafka_is_not(tmp_path: Path) -> None:
    ours, strangers = (
        SnapshotFiles(tmp_path, Disk(), SeededRng(1), cluster_id=one) for one in ("a", "b")
    )
    ours.write(ID, chunks())
    assert ours.read(ID).cluster_id is None
    ours.write(ID, chunks(cluster_id="a"))
    assert ours.read(ID).cluster_id == "a"
    with pytest.raises(CorruptSnapshotError, match="cluster a"):
        strangers.read(ID)


CONFIG = MetadataLogConfig(
    max_record_bytes_between_snapshots=1000,
    max_snapshot_interval_ms=600,
    replay_records_before_snapshot=50,
    max_retention_bytes=1000,
    max_retention_ms=5000,
)


@pytest.mark.parametrize(
    ("facts", "due"),
    [
        (SnapshotFacts(0, 0, 0, True), False),
        (SnapshotFacts(999, 50, 599, True), False),
        (SnapshotFacts(1000, 0, 0, True), True),
        (SnapshotFacts(0, 51, 0, True), True),
        (SnapshotFacts(0, 0, 600, True), True),
        (SnapshotFacts(9999, 99, 9999, False), False),
    ],
)
def test_bytes_time_or_a_long_replay_make_a_snapshot_due(facts: SnapshotFacts, due: bool) -> None:
    assert is_snapshot_due(facts, CONFIG) == due


def test_an_interval_of_0_is_off() -> None:
    facts = SnapshotFacts(0, 0, 10**9, True)
    assert not is_snapshot_due(facts, MetadataLogConfig(max_snapshot_interval_ms=0))


def kept(*facts: tuple[int, int]) -> list[KeptSnapshot]:
    return [KeptSnapshot(SnapshotId(n, 1), size, age) for n, (size, age) in enumerate(facts)]


@pytest.mark.parametrize(
    ("snapshots", "log_bytes", "count"),
    [
        (kept(), 9999, 0),
        (kept((100, 99999)), 9999, 0),
        (kept((100, 9000), (100, 4000)), 0, 1),
        (kept((100, 9000), (100, 8000), (100, 7000)), 0, 2),
        (kept((100, 1), (100, 1)), 800, 0),
        (kept((100, 1), (100, 1)), 801, 1),
        (kept((300, 1), (300, 1), (300, 1)), 200, 1),
    ],
)
def test_the_oldest_snapshots_go_by_age_and_size_and_the_newest_stays(
    snapshots: list[KeptSnapshot], log_bytes: int, count: int
) -> None:
    assert snapshots_to_delete(snapshots, log_bytes, CONFIG) == count


def test_negative_retention_keeps_everything() -> None:
    config = MetadataLogConfig(max_retention_bytes=-1, max_retention_ms=-1)
    assert snapshots_to_delete(kept((10**9, 10**12), (1, 1)), 10**12, config) == 0
