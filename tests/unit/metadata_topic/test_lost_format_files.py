"""What a start needs of the files that the format step has written, once the log has records.

`bootstrap.checkpoint` holds the records of the first start; 0-0 names the first voters. The first
leader writes both into the log.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kafka_protocol.errors import TidemarkError
from kafka_protocol.records.batch import HEADER_SIZE, write_crc
from metadata_topic.quorum.errors import UnreadableRecordError
from metadata_topic.quorum.log.batches import whole_batches
from metadata_topic.quorum.snapshot.snapshots import CorruptSnapshotError
from metadata_topic.quorum.start.format import BOOTSTRAP_FILE, NotFormattedError
from metadata_topic.quorum.start.quorum_start import LostVotersError, Membership
from metadata_topic.raft.messages import BOOTSTRAP_ID
from tests.support.worlds.driven_quorum import DrivenQuorum
from tests.support.worlds.replica_quorum import ReplicaNode, ReplicaQuorum

HARMS = pytest.mark.parametrize("is_gone", [True, False], ids=["missing", "damaged"])


def bootstrap_of(node: ReplicaNode) -> Path:
    return node.directory.parent / BOOTSTRAP_FILE


def voters_of(node: ReplicaNode) -> Path:
    return node.directory / BOOTSTRAP_ID.file_name


def harm(path: Path, *, is_gone: bool) -> None:
    if is_gone:
        path.unlink()
        return
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)


def lived(root: Path, *, is_dynamic: bool = False) -> ReplicaQuorum:
    """Three voters that have the topic "a", and were killed."""
    quorum = ReplicaQuorum(root, [1, 2, 3], is_dynamic=is_dynamic)
    quorum.start()
    quorum.create(quorum.elect_active(), "a")
    quorum.advance(1_000)
    for node in quorum.replicas:
        node.kill()
    return quorum


def formatted(root: Path, *, is_dynamic: bool = False, ids: tuple[int, ...] = (1, 2, 3)) -> None:
    """Directories whose logs are empty."""
    quorum = ReplicaQuorum(root, ids, is_dynamic=is_dynamic)
    quorum.start()
    for node in quorum.replicas:
        node.kill()


def files(node: ReplicaNode) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in node.directory.iterdir()}


def make_unreadable(path: Path) -> None:
    """Give its first metadata record a type that this version does not know."""
    data = bytearray(path.read_bytes())
    position, header = next(
        (position, header) for position, header in whole_batches(data) if not header.is_control
    )
    frame = position + HEADER_SIZE + 6  # behind six varints and attributes of one byte
    assert data[frame] == 1
    data[frame + 1] = 99
    write_crc(data, position, header.size_bytes)
    path.write_bytes(data)


def put_directory(path: Path) -> None:
    """Let reading fail."""
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "spoil",
    [partial(harm, is_gone=True), partial(harm, is_gone=False), make_unreadable, put_directory],
    ids=["missing", "damaged", "newer", "unreadable"],
)
def test_voters_with_records_start_without_the_bootstrap_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None]
) -> None:
    quorum = lived(tmp_path)
    for node in quorum.replicas:
        spoil(bootstrap_of(node))
    quorum.start()
    leader = quorum.elect_active()
    quorum.create(leader, "b")
    assert leader.names == {"a", "b"}
    said = [record for record in caplog.records if record.levelname == "ERROR"]
    for node in quorum.replicas:
        assert sum(str(bootstrap_of(node)) in record.getMessage() for record in said) == 1


def test_bootstrap_records_of_a_newer_version_are_refused_with_their_file(tmp_path: Path) -> None:
    formatted(tmp_path)
    quorum = ReplicaQuorum(tmp_path, [1, 2, 3])
    node = quorum.replicas[0]
    make_unreadable(bootstrap_of(node))
    with pytest.raises(UnreadableRecordError, match=r"bootstrap\.checkpoint .*99.*later one"):
        node.start()


@HARMS
def test_voters_without_records_need_the_bootstrap_records(tmp_path: Path, is_gone: bool) -> None:
    formatted(tmp_path)
    quorum = ReplicaQuorum(tmp_path, [1, 2, 3])
    node = quorum.replicas[0]
    harm(bootstrap_of(node), is_gone=is_gone)
    before = files(node)
    with pytest.raises(TidemarkError, match="restore the file from a copy") as refused:
        node.start()
    assert isinstance(refused.value, NotFormattedError if is_gone else CorruptSnapshotError)
    assert str(bootstrap_of(node)) in str(refused.value)
    assert files(node) == before


def test_records_that_say_nothing_are_no_reason_to_lead_an_empty_cluster(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing ever counted leaders without the bootstrap records let others lead in turn."""
    empty = DrivenQuorum(tmp_path, [1, 2, 3])
    empty.start()
    assert empty.elect().propose_noop()
    empty.advance(2_000)
    quorum = ReplicaQuorum(tmp_path, [1, 2, 3])
    first, second, third = quorum.replicas
    others = [second, third]
    for node in (first, second):
        harm(bootstrap_of(node), is_gone=True)
    quorum.cut = {(one.id, other) for one in others for other in quorum.members}
    quorum.start()
    while not first.leads:
        quorum.advance(10)
    quorum.cut.clear()
    for _ in range(1_000):
        quorum.advance(10)
    leader = quorum.elect_active()
    quorum.create(leader, "a")
    assert leader is third
    assert leader.replica.image.metadata_version > 0
    said = "the first records of a controller cannot be written"
    assert f"gives the lead up: {said}: {bootstrap_of(first)}" in caplog.text


@HARMS
def test_voters_whose_log_names_them_start_without_0_0(tmp_path: Path, is_gone: bool) -> None:
    quorum = lived(tmp_path, is_dynamic=True)
    for node in quorum.replicas:
        harm(voters_of(node), is_gone=is_gone)
    quorum.start()
    leader = quorum.elect_active()
    quorum.create(leader, "b")
    assert leader.names == {"a", "b"}
    assert {node.opened.plan.membership for node in quorum.replicas} == {Membership.VOTER}
    assert leader.replica.kraft_version == 1
    kept = [path for path in leader.directory.iterdir() if path.name.endswith(".corrupt")]
    assert len(kept) == (0 if is_gone else 1)


def test_a_damaged_0_0_says_nothing_where_the_log_has_no_voters(tmp_path: Path) -> None:
    """A log of kraft.version 0: its first batch would name them otherwise."""
    quorum = lived(tmp_path)
    for node in quorum.replicas:
        voters_of(node).write_bytes(b"damaged")
    quorum.start()
    quorum.create(quorum.elect_active(), "b")


def test_without_a_log_a_damaged_0_0_is_refused(tmp_path: Path) -> None:
    formatted(tmp_path, is_dynamic=True)
    quorum = ReplicaQuorum(tmp_path, [1, 2, 3], is_dynamic=True)
    node = quorum.replicas[0]
    harm(voters_of(node), is_gone=False)
    before = files(node)
    with pytest.raises(LostVotersError, match="Restore it from a copy") as refused:
        node.start()
    assert str(voters_of(node)) in str(refused.value)
    assert files(node) == before
    voters_of(node).write_bytes(voters_of(quorum.replicas[1]).read_bytes())
    quorum.start()
    quorum.create(quorum.elect_active(), "a")


def test_without_a_log_and_0_0_a_controller_observes(tmp_path: Path) -> None:
    """As one that was formatted to join: it learns from the others that it votes."""
    formatted(tmp_path, is_dynamic=True)
    quorum = ReplicaQuorum(tmp_path, [1, 2, 3], is_dynamic=True)
    node = quorum.replicas[0]
    harm(voters_of(node), is_gone=True)
    quorum.start()
    assert node.opened.plan.membership is Membership.OBSERVER_CONTROLLER
    quorum.create(quorum.elect_active(), "a")
    quorum.advance(1_000)
    assert node.names == {"a"}
    assert node.replica.history.latest.voters == quorum.first_voters
