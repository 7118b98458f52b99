"""Each number of a replica moves with what it says."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.quorum.driver.raft_metrics import RaftMetrics
from metadata_topic.raft.messages import BatchFacts, FetchRequest
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import Voter, VoterEndpoint, VoterSet
from runtime.metrics import Registry, Sample
from tests.support.sim.clock import ManualClock
from tests.support.worlds.replica_quorum import ReplicaNode, ReplicaQuorum
from tests.support.worlds.scripted_core import ScriptedCore, key

RAFT = "kafka_server_raft_metrics_"
CONTROLLER = "kafka_controller_KafkaController_"


def values(node: ReplicaNode) -> dict[str, float]:
    return by_name(node.ports.metrics.samples())


def by_name(samples: Iterable[Sample]) -> dict[str, float]:
    """Name, with its labels' values where it has some, to value."""
    return {
        "".join([sample.name, *(f"[{value}]" for value in sample.labels.values())]): sample.value
        for sample in samples
    }


def shown(node: ScriptedCore) -> dict[str, float]:
    """The same of a core alone."""
    registry = Registry()
    RaftMetrics(registry, ManualClock()).show(node.core)
    return by_name(registry.samples())


def three(path: Path) -> tuple[ReplicaQuorum, ReplicaNode, ReplicaNode]:
    quorum = ReplicaQuorum(path, [1, 2, 3])
    quorum.config = replace(quorum.config, max_retention_bytes=1)
    quorum.start()
    leader = quorum.elect_active()
    return quorum, leader, next(node for node in quorum.replicas if node is not leader)


def test_a_leader_and_its_followers_say_what_they_are(tmp_path: Path) -> None:
    quorum, leader, follower = three(tmp_path)
    quorum.create(leader, "a")
    quorum.advance(1_000)
    core = leader.replica.driver.core
    led, followed = values(leader), values(follower)
    for seen in (led, followed):
        assert seen[f"{RAFT}current_leader"] == leader.id
        assert seen[f"{RAFT}current_epoch"] == core.epoch
        assert seen[f"{RAFT}high_watermark"] == core.high_watermark
        assert seen[f"{RAFT}log_end_offset"] == core.log.end_offset
        assert seen[f"{RAFT}log_end_epoch"] == core.epoch
        assert seen[f"{RAFT}number_of_voters"] == 3
        assert seen[f"{RAFT}number_of_observers"] == 0
        assert seen[f"{RAFT}number_unknown_voter_connections"] == 0
        assert seen[f"{RAFT}uncommitted_voter_change"] == 0
    assert led[f"{RAFT}current_state[leader]"] == followed[f"{RAFT}current_state[follower]"] == 1
    assert led[f"{RAFT}current_vote"] == leader.id
    own_directory = uuid_to_text(bytes([leader.id]) * 16)
    assert led[f"{RAFT}current_vote_directory_id[{own_directory}]"] == 1
    assert led[f"{CONTROLLER}ActiveControllerCount"] == 1
    assert followed[f"{CONTROLLER}ActiveControllerCount"] == 0
    assert led["tidemark_metadata_voter_lag[1]"] == 0
    assert sum(name.startswith("tidemark_metadata_voter_lag") for name in led) == 2
    assert not any(name.startswith("tidemark_metadata_voter_lag") for name in followed)


def test_a_record_is_counted_and_timed_on_its_way(tmp_path: Path) -> None:
    quorum, leader, follower = three(tmp_path)
    quorum.advance(1_000)
    before = {node.id: values(node) for node in (leader, follower)}
    quorum.create(leader, "a")
    quorum.advance(1_000)
    after = {node.id: values(node) for node in (leader, follower)}

    def grew(node: ReplicaNode, name: str) -> float:
        return after[node.id].get(name, 0) - before[node.id].get(name, 0)

    appended = grew(leader, f"{RAFT}append_records_total")
    assert appended > 0
    assert grew(follower, f"{RAFT}append_records_total") == 0
    assert grew(follower, f"{RAFT}fetch_records_total") == appended
    assert grew(leader, f"{RAFT}fetch_records_total") == 0
    for node in (leader, follower):
        assert grew(node, "tidemark_metadata_fsync_time_ms_count") > 0
        assert grew(node, "tidemark_metadata_apply_time_ms_count") > 0
    assert grew(leader, "tidemark_metadata_commit_time_ms_count") > 0
    assert grew(follower, "tidemark_metadata_commit_time_ms_count") == 0
    latency = after[leader.id][f"{RAFT}commit_latency_max"]
    assert 0 < after[leader.id][f"{RAFT}commit_latency_avg"] <= latency
    assert after[leader.id]["kafka_server_broker_metadata_metrics_last_applied_record_offset"] > 0


def test_every_node_names_the_active_controller(tmp_path: Path) -> None:
    quorum, leader, follower = three(tmp_path)
    name = "kafka_server_MetadataLoader_CurrentControllerId"
    quorum.advance(1_000)
    assert [values(node)[name] for node in (leader, follower)] == [leader.id] * 2
    leader.kill()
    quorum.advance(100)
    other = quorum.elect_active()
    assert values(other)[name] == other.id != leader.id


def test_a_voter_that_hears_nothing_lags(tmp_path: Path) -> None:
    quorum, leader, follower = three(tmp_path)
    follower.kill()
    quorum.create(leader, "a")
    assert values(leader)[f"tidemark_metadata_voter_lag[{follower.id}]"] > 0


def test_an_election_is_timed_by_who_stood_in_it(tmp_path: Path) -> None:
    quorum, leader, _ = three(tmp_path)
    leader.kill()
    follower = quorum.elect_active()
    assert follower is not leader
    seen = values(follower)
    assert 0 < seen[f"{RAFT}election_latency_avg"] <= seen[f"{RAFT}election_latency_max"]
    assert seen[f"{CONTROLLER}NewActiveControllersCount"] >= 1


def test_what_is_not_known_yet_is_said_in_kafkas_numbers() -> None:
    node = ScriptedCore()
    seen = shown(node)
    assert seen[f"{RAFT}current_state[unattached]"] == 1
    assert seen[f"{RAFT}current_leader"] == -1
    assert seen[f"{RAFT}current_vote"] == -1
    assert seen[f"{RAFT}high_watermark"] == -1
    assert seen[f"{RAFT}current_epoch"] == 0
    assert seen[f"{RAFT}log_end_offset"] == 0
    assert seen[f"{RAFT}log_end_epoch"] == 0
    node.tick(60_000)
    assert f"{RAFT}current_state[prospective]" in shown(node)
    node.follow()
    assert f"{RAFT}current_state[follower]" in shown(node)
    assert shown(node)[f"{RAFT}current_leader"] == 1
    assert f"{RAFT}current_state[observer]" in shown(_following(9))


def _following(node_id: int) -> ScriptedCore:
    node = ScriptedCore(node_id)
    node.follow()
    return node


def test_voters_and_observers_are_counted_as_they_come_and_go() -> None:
    def voters(*ids: int, without_address: int = 0) -> VoterSet:
        endpoints = {one: (VoterEndpoint("CONTROLLER", f"n{one}", 9093),) for one in ids}
        endpoints[without_address] = ()
        return VoterSet(tuple(Voter(key(one), endpoints[one]) for one in ids))

    node = ScriptedCore(facts=QuorumFacts(1, voters(1, 2, 3), in_log=True), voters=())
    node.lead()
    seen = shown(node)
    assert seen[f"{RAFT}number_of_voters"] == 3
    assert seen[f"{RAFT}number_of_observers"] == 0
    assert seen[f"{RAFT}number_unknown_voter_connections"] == 0
    node.ask(FetchRequest(key(9), node.core.epoch, 1, node.core.epoch))
    assert shown(node)[f"{RAFT}number_of_observers"] == 1

    follower = ScriptedCore(facts=QuorumFacts(1, voters(1, 2, 3), in_log=True), voters=())
    fetch = follower.follow()
    fewer = BatchFacts(0, 1, 1, None, voters(1, 2, without_address=1))
    follower.answer(fetch, follower.records(fewer))
    seen = shown(follower)
    assert seen[f"{RAFT}number_of_voters"] == 2
    assert seen[f"{RAFT}number_unknown_voter_connections"] == 1
    assert seen[f"{RAFT}number_of_observers"] == 0, "only the leader knows them"


def test_voters_that_are_not_committed_are_a_change_on_the_way() -> None:
    first = VoterSet(
        tuple(Voter(key(i), (VoterEndpoint("CONTROLLER", f"n{i}", 9093),)) for i in (1, 2, 3))
    )
    node = ScriptedCore(voters=(), facts=QuorumFacts(1, first))
    node.lead()
    assert shown(node)[f"{RAFT}uncommitted_voter_change"] == 1, "its first batch names them"
    end = node.core.log.end_offset
    node.ask(FetchRequest(key(3), node.core.epoch, end, node.core.epoch))
    assert node.core.high_watermark == end
    assert shown(node)[f"{RAFT}uncommitted_voter_change"] == 0


def test_a_lost_leader_leaves_nobody(tmp_path: Path) -> None:
    quorum, _, follower = three(tmp_path)
    for node in quorum.replicas:
        if node is not follower:
            node.kill()
    quorum.advance(10_000)
    seen = values(follower)
    states = [name for name in seen if name.startswith(f"{RAFT}current_state")]
    assert states == [f"{RAFT}current_state[prospective]"] or states == [
        f"{RAFT}current_state[prospective-voted]"
    ]


def test_snapshots_that_are_made_and_loaded_are_counted(tmp_path: Path) -> None:
    quorum, leader, late = three(tmp_path)
    quorum.create(leader, "a")
    quorum.advance(1_000)
    others = {node.id for node in quorum.replicas} - {late.id}
    quorum.cut = {(late.id, other) for other in others} | {(other, late.id) for other in others}
    quorum.create(leader, "b")
    assert values(leader)[f"{CONTROLLER}SnapshotLag"] > 0
    quorum.snapshot(leader)
    quorum.create(leader, "c")
    newest = quorum.snapshot(leader)
    made = values(leader)
    size = leader.opened.files.size_bytes(newest)
    assert made[f"{CONTROLLER}GenSnapshotLatencyMs_count"] == 2
    assert made[f"{CONTROLLER}SnapshotSizeBytes"] == size
    assert made["kafka_server_SnapshotEmitter_LatestSnapshotGeneratedBytes"] == size
    assert made[f"{CONTROLLER}SnapshotLag"] == 0
    age_ms = made["kafka_server_SnapshotEmitter_LatestSnapshotGeneratedAgeMs"]
    quorum.cut = set()
    quorum.advance(20_000)
    later = values(quorum.elect_active())
    assert values(leader)["kafka_server_SnapshotEmitter_LatestSnapshotGeneratedAgeMs"] > age_ms
    loaded = values(late)
    assert loaded["kafka_server_MetadataLoader_HandleLoadSnapshotCount"] == 1
    assert loaded[f"{CONTROLLER}LoadSnapshotLatencyMs_count"] == 1
    assert loaded["tidemark_metadata_snapshot_loaded_bytes_total"] == size
    level = "kafka_server_MetadataLoader_CurrentMetadataVersion"
    assert loaded[level] == later[level] == late.replica.image.metadata_version > 0
    assert loaded["kafka_server_MetadataLoader_FinalizedLevel[metadata.version]"] == loaded[level]
