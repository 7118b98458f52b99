"""A recorded question put to our core, and the two answers in one form.

Left to the adapter of the wire: other clusters, other topics, several partitions, Fetch by name.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.primitives import uuid_from_text
from metadata_topic.raft.effects import Effect, Persist, Respond, RespondChunk, RespondRecords
from metadata_topic.raft.events import ElectionState
from metadata_topic.raft.messages import (
    ANY_REPLICA,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    Node,
    Request,
    SnapshotId,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.voters import ReplicaKey
from tests.support.raft_answers.directories import CLUSTER_ID
from tests.support.raft_answers.roles import Row, core_for, election_of
from tests.support.samples.golden_files import GOLDEN

FOLDER = GOLDEN / "raft"
CORE_APIS = ("VOTE", "BEGIN_QUORUM_EPOCH", "END_QUORUM_EPOCH", "FETCH", "FETCH_SNAPSHOT")


@dataclass(frozen=True)
class Outcome:
    """An answer and what it left.

    Attributes:
        error: Kafka's code; None where the connection was ended without an answer.
        leader: (leader id, epoch) of the answer; None where it has none.
        address: whether the answer says where the leader listens; None where it cannot.
        granted: of votes.
        went: of Fetch: what there was instead of records, or up to where records go.
        high_watermark: of Fetch.
        election: (epoch, leader id, voted id) afterwards.
        role: afterwards.
    """

    error: int | None
    leader: tuple[int, int] | None = None
    address: bool | None = None
    granted: bool | None = None
    went: tuple[Any, ...] | None = None
    high_watermark: int | None = None
    election: tuple[int, int, int] | None = None
    role: str | None = None

    def differences(self, other: "Outcome") -> dict[str, tuple[Any, Any]]:
        """Fields that differ, with both values."""
        mine, others = asdict(self), asdict(other)
        return {name: (mine[name], others[name]) for name in mine if mine[name] != others[name]}


def rows(world: str) -> list[Row]:
    """The recording of a world."""
    with (FOLDER / f"{world}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def is_for_the_core(row: Row) -> bool:
    """Whether the core sees the request."""
    if row["api"] not in CORE_APIS or (row["api"] == "FETCH" and row["version"] < 13):
        return False
    request = row["request"]
    if request.get("clusterId") not in {None, CLUSTER_ID} or len(request["topics"]) != 1:
        return False
    topic = request["topics"][0]
    name = topic.get("topicName", topic.get("name", "__cluster_metadata"))
    is_ours = name == "__cluster_metadata" and topic.get("topicId", _TOPIC_ID) == _TOPIC_ID
    partitions = topic["partitions"]
    index = partitions[0].get("partitionIndex", partitions[0].get("partition"))
    return is_ours and len(partitions) == 1 and index == 0


_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def request_of(row: Row) -> Request:
    """The request as the core takes it."""
    request = row["request"]
    partition = request["topics"][0]["partitions"][0]
    match row["api"]:
        case "VOTE":
            return VoteRequest(
                epoch=partition["replicaEpoch"],
                candidate=_key(partition["replicaId"], partition.get("replicaDirectoryId")),
                voter=_voter(request, partition),
                last_epoch=partition["lastOffsetEpoch"],
                end_offset=partition["lastOffset"],
                pre_vote=partition.get("preVote", False),
            )
        case "BEGIN_QUORUM_EPOCH":
            leader = partition["leaderId"]
            return BeginQuorumEpochRequest(
                epoch=partition["leaderEpoch"],
                leader_id=leader,
                voter=_voter(request, partition),
                leader=_node(leader, request),
            )
        case "END_QUORUM_EPOCH":
            leader = partition["leaderId"]
            successors = [
                _key(one["candidateId"], one["candidateDirectoryId"])
                for one in partition.get("preferredCandidates", ())
            ] + [ReplicaKey(one) for one in partition.get("preferredSuccessors", ())]
            return EndQuorumEpochRequest(
                epoch=partition["leaderEpoch"],
                leader_id=leader,
                successors=tuple(successors),
                leader=_node(leader, request),
            )
        case "FETCH":
            return _fetch(row["version"], request, partition)
    snapshot = partition["snapshotId"]
    return FetchSnapshotRequest(
        replica=_key(request["replicaId"], partition.get("replicaDirectoryId")),
        epoch=partition["currentLeaderEpoch"],
        snapshot_id=SnapshotId(snapshot["endOffset"], snapshot["epoch"]),
        position=partition["position"],
        max_bytes=request["maxBytes"],
    )


def _fetch(version: int, request: dict[str, Any], partition: dict[str, Any]) -> FetchRequest:
    replica = request.get("replicaId", -1)
    if version >= 15:
        replica = request.get("replicaState", {}).get("replicaId", -1)
    return FetchRequest(
        replica=_key(replica, partition.get("replicaDirectoryId")),
        epoch=partition["currentLeaderEpoch"],
        offset=partition["fetchOffset"],
        last_fetched_epoch=partition["lastFetchedEpoch"],
        high_watermark=partition.get("highWatermark", 2**63 - 1),
        max_wait_ms=request["maxWaitMs"],
    )


def _key(node_id: int, directory: str | None) -> ReplicaKey:
    return ReplicaKey(node_id, ZERO_UUID if directory is None else uuid_from_text(directory))


def _voter(request: dict[str, Any], partition: dict[str, Any]) -> ReplicaKey:
    if "voterId" not in request:
        return ANY_REPLICA
    return _key(request["voterId"], partition.get("voterDirectoryId"))


def _node(leader: int, request: dict[str, Any]) -> Node | None:
    endpoints = request.get("leaderEndpoints")
    return Node(leader, endpoints[0]["host"], endpoints[0]["port"]) if endpoints else None


def recorded(row: Row) -> Outcome:
    """What Kafka did."""
    after = election_of(row["after"])
    left = {
        "election": (
            after.epoch,
            _id(after.leader_id),
            -1 if after.voted is None else after.voted.id,
        ),
        "role": row["role_after"],
    }
    response = row["response"]
    if response is None:
        return Outcome(None, **left)
    topics = response.get("topics", response.get("responses"))
    if not topics:
        return Outcome(response["errorCode"], **left)
    partition = topics[0]["partitions"][0]
    error = response["errorCode"] or partition["errorCode"]
    current = partition.get("currentLeader", partition)
    address = None
    if row["version"] >= (17 if row["api"] == "FETCH" else 1):
        address = bool(response.get("nodeEndpoints"))
    return Outcome(
        error,
        (current.get("leaderId", -1), current.get("leaderEpoch", -1)),
        address,
        partition.get("voteGranted"),
        _went(response, partition) if row["api"] == "FETCH" and not error else None,
        partition["highWatermark"] if row["api"] == "FETCH" and not error else None,
        **left,
    )


def _id(leader_id: int | None) -> int:
    return -1 if leader_id is None else leader_id


def _went(response: dict[str, Any], partition: dict[str, Any]) -> tuple[Any, ...]:
    if "divergingEpoch" in partition:
        diverging = partition["divergingEpoch"]
        return ("diverging", diverging["epoch"], diverging["endOffset"])
    if "snapshotId" in partition:
        snapshot = partition["snapshotId"]
        return ("snapshot", snapshot["endOffset"], snapshot["epoch"])
    batches = response.get("batches")
    return ("records", batches[-1][1]) if batches else ("nothing",)


def ours(row: Row) -> Outcome:
    """What our core does."""
    driven = core_for(row)
    core = driven.core
    before = election_of(row["before"])
    assert core.epoch == before.epoch, "not the recorded epoch"
    assert core.election.leader_id == before.leader_id, "not the recorded leader"
    assert core.log.end_offset == row["log"]["end"], "not the recorded log end"
    request = request_of(row)
    effects = driven.ask(request)
    if not any(isinstance(one, Respond | RespondRecords | RespondChunk) for one in effects):
        effects = driven.wait()  # parked
    check_durable(before, effects)
    voted = core.election.voted
    left = {
        "election": (core.epoch, _id(core.leader_id), -1 if voted is None else voted.id),
        "role": core.role.value,
    }
    return _answer(row, effects, left)


def check_durable(before: ElectionState, effects: list[Effect]) -> None:
    """Assert that the answer waits for the epoch, and a vote for the vote."""
    known = before
    raises_epoch = votes = 0
    for effect in effects:
        match effect:
            case Persist(number, election):
                if election.epoch > known.epoch:
                    raises_epoch = number
                if election.voted not in {None, known.voted}:
                    votes = number
                known = election
            case Respond(_, response, after):
                assert after >= raises_epoch, "the answer does not wait for the epoch"
                is_vote = isinstance(response, VoteResponse) and response.granted
                assert not is_vote or after >= votes, "the answer does not wait for the vote"


def _answer(row: Row, effects: list[Effect], left: dict[str, Any]) -> Outcome:
    has_address = row["version"] >= (17 if row["api"] == "FETCH" else 1)
    for effect in effects:
        match effect:
            case Respond(_, response):
                return Outcome(
                    int(response.error),
                    _leader(response.standing),
                    response.standing.leader is not None if has_address else None,
                    response.granted if isinstance(response, VoteResponse) else None,
                    _instead(response),
                    response.high_watermark
                    if isinstance(response, FetchResponse) and not response.error
                    else None,
                    **left,
                )
            case RespondRecords():
                is_empty = effect.end_offset == effect.offset
                return Outcome(
                    int(ErrorCode.NONE),
                    _leader(effect.standing),
                    effect.standing.leader is not None if has_address else None,
                    None,
                    ("nothing",) if is_empty else ("records", effect.end_offset),
                    effect.high_watermark,
                    **left,
                )
            case RespondChunk():
                address = effect.standing.leader is not None if has_address else None
                return Outcome(0, _leader(effect.standing), address, **left)
    return Outcome(None, **left)


def _leader(standing: Standing) -> tuple[int, int]:
    return (standing.leader_id, standing.epoch)


def _instead(response: Any) -> tuple[Any, ...] | None:
    if not isinstance(response, FetchResponse) or response.error:
        return None
    if response.diverging is not None:
        return ("diverging", response.diverging.epoch, response.diverging.end_offset)
    if response.snapshot_id is not None:
        return ("snapshot", *response.snapshot_id)
    return ("nothing",)
