"""A voter whose flushed records are damaged does not come back without them.

It was counted when they were committed. If it took the damaged place for a torn tail, it and a
voter that never had them could elect a leader without them.
"""

from pathlib import Path

import pytest

from kafka_protocol.records.batch import BatchHeader, iter_batches
from metadata_topic.image.records import make
from metadata_topic.quorum.errors import UnusableMetadataError
from metadata_topic.quorum.log.flushed_end_file import FLUSHED_END, parse_flushed_end
from runtime.disk import Buffer, Disk, OpenFile
from tests.support.sim.power_cut_disk import PowerCutDisk
from tests.support.sim.rng import SeededRng
from tests.support.worlds.driven_quorum import DrivenNode, DrivenQuorum
from tests.support.worlds.metadata_home import forget_lines

NAMES = [b"first", b"second", b"third"]


@pytest.fixture
def quorum(tmp_path: Path) -> DrivenQuorum:
    """In the second life of all: each has a note of its first."""
    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    quorum.start()
    quorum.elect()
    quorum.advance(1_000)
    for node in quorum.members.values():
        node.kill()
    return quorum


def parts(quorum: DrivenQuorum) -> tuple[DrivenNode, DrivenNode, DrivenNode]:
    """The leader, and the two that follow it."""
    leader = quorum.elect()
    quorum.advance(1_000)
    with_it, late = (node for node in quorum.members.values() if node is not leader)
    return leader, with_it, late


def cut_off(quorum: DrivenQuorum, node: DrivenNode) -> None:
    for other in quorum.members:
        if other != node.id:
            quorum.cut |= {(node.id, other), (other, node.id)}


def propose(quorum: DrivenQuorum, leader: DrivenNode) -> None:
    for number, name in enumerate(NAMES):
        record = make("TopicRecord", name=name.decode(), topic_id=bytes([number + 1]) * 16)
        assert leader.propose([record])
        quorum.advance(50)


def log_of(node: DrivenNode) -> tuple[Path, list[tuple[int, BatchHeader]]]:
    [path] = node.directory.glob("*.log")
    return path, list(iter_batches(path.read_bytes()))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def end_of(node: DrivenNode) -> int:
    assert node.driver is not None
    return node.driver.core.high_watermark


@pytest.mark.parametrize("cuts", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("back", [1, 2, 3])
def test_a_voter_does_not_cut_what_was_counted(quorum: DrivenQuorum, cuts: bool, back: int) -> None:
    """Committed on two of three disks; one of them is damaged, the other is down."""
    disks: dict[int, PowerCutDisk] = {}
    if cuts:
        for node in quorum.members.values():
            home = node.directory.parent
            node.disk = disks[node.id] = PowerCutDisk(home, SeededRng(node.id))
    quorum.start()
    leader, with_it, late = parts(quorum)
    cut_off(quorum, late)
    propose(quorum, leader)
    quorum.advance(1_200)  # the note of what was flushed is durable by then
    assert leader.leads
    assert end_of(leader) == with_it.opened.log.end_offset > late.opened.log.end_offset
    with_it.kill()
    leader.kill()
    if cuts:
        disks[with_it.id].cut()
        with_it.disk = Disk()
    path, batches = log_of(with_it)
    position, header = batches[-back]
    flip(path, position + 70)
    quorum.cut.clear()
    before = path.read_bytes()
    with pytest.raises(UnusableMetadataError) as refused:
        with_it.start()
    assert f"{path} is damaged at position {position} (offset {header.base_offset})" in str(
        refused.value
    )
    assert path.read_bytes() == before
    quorum.advance(10_000)
    assert not late.leads, "alone it is no majority"
    leader.start()
    assert end_of(quorum.elect()) > header.base_offset
    quorum.advance(1_000)
    assert all(name in late.log_bytes for name in NAMES)


@pytest.mark.parametrize("lives", [1, 2])
def test_a_fetched_tail_that_a_power_cut_has_torn_is_cut(tmp_path: Path, lives: int) -> None:
    """Fetched batches say what their leader had flushed: nothing about this disk."""
    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    for _ in range(lives):
        for node in quorum.members.values():
            node.kill()
        quorum.start()
        leader, torn, _ = parts(quorum)
    cut_off(quorum, torn)
    propose(quorum, leader)
    end = torn.opened.log.end_offset
    torn.kill()
    path, batches = log_of(torn)
    tail = bytearray(leader.log_bytes[sum(header.size_bytes for _, header in batches) :])
    tail[62:90] = bytes(28)
    path.write_bytes(path.read_bytes() + tail)
    torn.start()
    assert torn.opened.log.end_offset == end
    quorum.cut.clear()
    quorum.advance(1_000)
    assert torn.log_bytes == leader.log_bytes


def test_the_very_first_records_that_a_follower_fetched_may_be_torn(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    torn = quorum.members[3]
    cut_off(quorum, torn)
    quorum.start()
    leader = quorum.elect()
    propose(quorum, leader)
    torn.kill()
    tail = bytearray(leader.log_bytes)
    tail[62:90] = bytes(28)
    [path] = torn.directory.glob("*.log")
    path.write_bytes(tail)
    torn.start()
    assert torn.opened.log.end_offset == 0


class WatchedDisk(Disk):
    """Reads the note of the flushed end whenever a file is cut."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._note = directory / FLUSHED_END
        self.noted: list[int] = []

    def truncate(self, file: OpenFile, size: int) -> None:
        if str(file.path).endswith(".log"):
            found = parse_flushed_end(self._note.read_bytes())
            assert found is not None
            self.noted.append(found.offset)
        super().truncate(file, size)


def test_before_the_log_is_cut_the_note_says_less(quorum: DrivenQuorum) -> None:
    for node in quorum.members.values():
        node.disk = WatchedDisk(node.directory)
    quorum.start()
    deposed, _, _ = parts(quorum)
    disk = deposed.disk
    assert isinstance(disk, WatchedDisk)
    cut_off(quorum, deposed)
    shared = deposed.opened.log.end_offset
    propose(quorum, deposed)
    found = parse_flushed_end((deposed.directory / FLUSHED_END).read_bytes())
    assert found is not None
    assert found.offset == deposed.opened.log.end_offset == shared + len(NAMES)
    quorum.advance(10_000)
    leader = quorum.elect()
    assert leader is not deposed
    disk.noted.clear()
    assert leader.driver is not None
    kept = leader.driver.core.epoch_start_offset
    quorum.cut.clear()
    quorum.advance(5_000)
    assert deposed.log_bytes == leader.log_bytes
    assert disk.noted == [kept]
    deposed.kill()
    deposed.start()
    assert deposed.opened.log.end_offset == leader.opened.log.end_offset


def test_a_damaged_voter_fetches_the_log_again_from_the_others(
    quorum: DrivenQuorum,
) -> None:
    """The remedy of docs/metadata-log.md: only its vote and who votes stay."""
    quorum.start()
    leader, damaged, other = parts(quorum)
    propose(quorum, leader)
    quorum.advance(1_000)
    assert end_of(leader) == end_of(other) == leader.opened.log.end_offset
    damaged.kill()
    path, batches = log_of(damaged)
    flip(path, batches[-2][0] + 70)
    with pytest.raises(UnusableMetadataError, match="let it fetch the log again"):
        damaged.start()
    vote = damaged.opened.state_file.find()
    assert vote is not None
    for file in damaged.directory.iterdir():
        if file.name not in {"quorum-state", "00000000000000000000-0000000000.checkpoint"}:
            file.unlink()
    damaged.start()
    assert damaged.driver is not None
    assert damaged.driver.core.epoch >= vote.epoch
    quorum.advance(2_000)
    assert damaged.log_bytes == leader.log_bytes
    assert end_of(damaged) == leader.opened.log.end_offset


class OrderingDisk(Disk):
    """Notes lines of the flushed end that are written while the log has bytes without an fsync."""

    def __init__(self) -> None:
        super().__init__()
        self.is_flushed = True
        self.lines = self.too_early = 0

    def append(self, file: OpenFile, data: Buffer) -> None:
        if str(file.path).endswith(FLUSHED_END):
            self.lines += 1
            self.too_early += not self.is_flushed
        elif str(file.path).endswith(".log"):
            self.is_flushed = False
        super().append(file, data)

    def fsync(self, file: OpenFile) -> None:
        self.is_flushed |= str(file.path).endswith(".log")
        super().fsync(file)


def test_what_is_noted_was_flushed_before(quorum: DrivenQuorum) -> None:
    for node in quorum.members.values():
        node.disk = OrderingDisk()
    quorum.start()
    leader, _, _ = parts(quorum)
    propose(quorum, leader)
    quorum.advance(1_000)
    for node in quorum.members.values():
        assert isinstance(node.disk, OrderingDisk)
        assert node.disk.lines >= len(NAMES)
        assert node.disk.too_early == 0


def test_after_a_power_cut_the_last_second_may_be_gone_from_the_note(quorum: DrivenQuorum) -> None:
    """What cannot be known: the last append before it, damaged where nothing was written after."""
    quorum.start()
    leader, with_it, _ = parts(quorum)
    propose(quorum, leader)
    with_it.kill()
    forget_lines(with_it.directory)
    path, batches = log_of(with_it)
    flip(path, batches[-1][0] + 70)
    with_it.start()
    quorum.advance(1_000)
    assert with_it.log_bytes == leader.log_bytes, "it fetches it again"
