"""Snapshots on every node of a quorum: made, fetched, loaded as images, and what they let go."""

from dataclasses import replace
from pathlib import Path

from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.records import make
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.raft.messages import SnapshotId
from tests.support.worlds.pools import HeldPool
from tests.support.worlds.replica_quorum import ReplicaNode, ReplicaQuorum


def three(path: Path, **config: int) -> tuple[ReplicaQuorum, ReplicaNode]:
    quorum = ReplicaQuorum(path, [1, 2, 3])
    quorum.config = replace(MetadataLogConfig(), **config)
    quorum.start()
    return quorum, quorum.elect_active()


def follower(quorum: ReplicaQuorum, leader: ReplicaNode) -> ReplicaNode:
    return next(node for node in quorum.replicas if node is not leader)


def snapshots_of(node: ReplicaNode) -> list[SnapshotId]:
    return [one for one in node.opened.files.ids() if one.end_offset > 0]


def lets_its_log_go(quorum: ReplicaQuorum, leader: ReplicaNode) -> SnapshotId:
    """The leader's log begins at a snapshot."""
    quorum.snapshot(leader)
    quorum.create(leader, "between")
    snapshot_id = quorum.snapshot(leader)
    assert leader.opened.log.start_offset == snapshot_id.end_offset
    return snapshot_id


def test_every_node_makes_its_own_of_what_is_committed(tmp_path: Path) -> None:
    quorum, leader = three(tmp_path, max_record_bytes_between_snapshots=2_000)
    for n in range(40):
        quorum.create(leader, f"t{n}")
    quorum.advance(2_000)
    for node in quorum.replicas:
        made = snapshots_of(node)
        assert made, f"node {node.id} made none"
        assert made[-1].end_offset <= node.replica.high_watermark
    image = leader.replica.image
    for node in quorum.replicas:
        node.kill()
    quorum.start()
    for node in quorum.replicas:
        assert node.opened.found.snapshot_id == snapshots_of(node)[-1]
    quorum.elect_active()
    quorum.advance(1_000)
    for node in quorum.replicas:
        assert node.replica.image.topics_by_name == image.topics_by_name


def test_a_node_behind_the_log_start_begins_anew_with_the_snapshot(tmp_path: Path) -> None:
    quorum, leader = three(tmp_path, max_retention_bytes=1)
    quorum.create(leader, "stays")
    quorum.create(leader, "goes")
    quorum.create(leader, "again", b"1" * 16)
    quorum.advance(1_000)
    late = follower(quorum, leader)
    seen = late.replica.image
    late.kill()
    quorum.delete(leader, "goes")
    quorum.delete(leader, "again")
    quorum.create(leader, "again", b"2" * 16)
    quorum.create(leader, "comes")
    snapshot_id = lets_its_log_go(quorum, leader)
    quorum.create(leader, "after")
    late.start()
    quorum.advance(10_000)
    assert late.names == leader.names == {"stays", "again", "comes", "between", "after"}
    assert late.replica.image == leader.replica.image
    assert seen.topics_by_name["again"].id == b"1" * 16
    assert late.replica.image.topics_by_name["again"].id == b"2" * 16
    assert snapshot_id in snapshots_of(late)
    assert late.replica.applied_end == leader.replica.applied_end


def test_a_running_node_that_is_left_behind_is_told_one_difference(tmp_path: Path) -> None:
    quorum, leader = three(tmp_path, max_retention_bytes=1)
    late = follower(quorum, leader)
    quorum.create(leader, "stays")
    quorum.create(leader, "again", b"1" * 16)
    quorum.advance(1_000)
    others = {node.id for node in quorum.replicas} - {late.id}
    quorum.cut = {(late.id, other) for other in others} | {(other, late.id) for other in others}
    quorum.delete(leader, "again")
    quorum.create(leader, "again", b"2" * 16)
    lets_its_log_go(quorum, leader)
    before = len(late.told)
    quorum.cut = set()
    quorum.advance(20_000)
    leader = quorum.elect_active()
    quorum.advance(1_000)
    assert late.replica.image == leader.replica.image
    [delta] = [delta for _, delta in late.told[before:] if delta.is_replacement]
    assert set(delta.deleted_topics) == {b"1" * 16}
    assert delta.created_topics == {b"2" * 16, b"between".ljust(16, b"-")}


def test_the_log_start_of_a_follower_rises_to_the_leaders_at_most(tmp_path: Path) -> None:
    quorum, leader = three(tmp_path, max_retention_bytes=1)
    one = follower(quorum, leader)
    quorum.create(leader, "a")
    quorum.advance(1_000)
    quorum.snapshot(one)
    quorum.create(leader, "b")
    quorum.advance(1_000)
    quorum.snapshot(one)
    assert one.opened.log.start_offset == 0, "the leader still has it all"
    start = lets_its_log_go(quorum, leader).end_offset
    quorum.advance(1_000)
    assert 0 < one.opened.log.start_offset < start, "its own newest snapshot ends before"
    quorum.snapshot(one)
    quorum.advance(1_000)
    quorum.create(leader, "c")
    quorum.advance(1_000)
    assert one.opened.log.start_offset <= leader.opened.log.start_offset


def test_a_snapshot_outlives_its_node_and_shortens_the_next_start(tmp_path: Path) -> None:
    quorum, leader = three(tmp_path)
    quorum.create(leader, "a")
    quorum.advance(1_000)
    one = follower(quorum, leader)
    made = quorum.snapshot(one)
    quorum.create(leader, "b")
    one.kill()
    one.start()
    assert one.opened.found.snapshot_id == made
    quorum.advance(0)
    assert one.names == {"a"}, "of the log nothing is known to be committed yet"
    quorum.advance(5_000)
    assert one.names == {"a", "b"}


def test_starting_nodes_vote_and_fetch_before_their_snapshot_is_loaded(tmp_path: Path) -> None:
    quorum, leader = three(tmp_path)
    quorum.create(leader, "a")
    quorum.advance(1_000)
    for node in quorum.replicas:
        quorum.snapshot(node)
        node.kill()
    for node in quorum.replicas:
        node.reads = HeldPool()
    quorum.start()
    leader_id = quorum.elect().id
    quorum.advance(1_000)
    leader = next(node for node in quorum.replicas if node.id == leader_id)
    assert leader.replica.high_watermark == leader.opened.log.end_offset, "followers have fetched"
    assert [node.names for node in quorum.replicas] == [set()] * 3
    assert not leader.replica.controller.is_active, "it must not decide on an image it has not"
    for node in quorum.replicas:
        assert isinstance(node.reads, HeldPool)
        node.reads.stop_holding()
    quorum.advance(1_000)
    assert [node.names for node in quorum.replicas] == [{"a"}] * 3
    quorum.create(quorum.elect_active(), "b")


def test_a_log_that_is_to_be_cut_waits_for_a_deletion_under_way_to_end(tmp_path: Path) -> None:
    quorum = ReplicaQuorum(tmp_path, [1])
    quorum.config = replace(MetadataLogConfig(), max_retention_bytes=1)
    [node] = quorum.replicas
    node.background = pool = HeldPool(is_holding=False)
    quorum.start()
    quorum.create(quorum.elect_active(), "a")
    quorum.snapshot(node)
    quorum.create(node, "b")
    pool.is_holding = True
    node.replica.snapshot(lambda _made: None)
    pool.release(2)  # the log is flushed, the snapshot is written: what it replaces is looked at
    assert pool.held == 1
    start, begun = node.opened.log.start_offset, []
    node.opened.log.gate.shut(lambda: begun.append(node.opened.log.start_offset))
    pool.release()
    assert begun == [node.replica.snapshotter.last_id.end_offset]
    assert begun != [start]


def test_read_records_can_be_kept_before_a_snapshot_replaces_the_log(
    tmp_path: Path,
) -> None:
    quorum, leader = three(tmp_path, max_retention_bytes=1)
    quorum.create(leader, "first")
    quorum.advance(1_000)
    late = follower(quorum, leader)
    late.kill()
    snapshot_id = lets_its_log_go(quorum, leader)
    log_starts: list[int] = []

    def keep() -> None:
        assert snapshot_id not in late.opened.files.ids()
        log_starts.append(late.opened.log.start_offset)

    late.before_install = keep
    late.start()
    quorum.advance(10_000)
    assert log_starts == [0]
    assert late.opened.log.start_offset == snapshot_id.end_offset
    assert late.names == leader.names


def test_an_id_that_controllers_keep_no_list_of_leaves_that_of_one_node(tmp_path: Path) -> None:
    quorum, leader = three(tmp_path)
    quorum.create(leader, "first")
    gone, stays = b"g" * 16, b"s" * 16
    records = (make("NoOpRecord", removed_tiered_topics=[gone, stays]),)
    leader.replica.submit(lambda _image: ControllerResult(records, None), lambda _outcome: None)
    quorum.advance(1_000)
    other = follower(quorum, leader)
    other.replica.drop_removed([gone])
    quorum.create(leader, "second")
    quorum.advance(1_000)
    assert list(other.replica.image.removed_tiered_topics) == [stays]
    assert list(leader.replica.image.removed_tiered_topics) == [gone, stays]
