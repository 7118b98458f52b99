"""Bad requests over the wire to a quorum that runs: refused by code, and nothing of it moves.

N105, N107, N108, several topics or partitions, absurd positions and sizes, older and later epochs.
What reaches the core is tested there in every state; here it is three processes, at the leader and
at a follower, and what lies on their disks.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.quorum.wire.rpc import TOPIC_ID
from tests.support.quorum.kept_brokers import until_registered
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Leader, Plan, Quorum

pytestmark = [pytest.mark.lasts(seconds=30), pytest.mark.patience(seconds=120)]

STRANGER = 999
FAR = 2**63 - 1
EPOCH_MAX = 2**31 - 1
TOPIC = "__cluster_metadata"
VERSIONS = {
    ApiKey.VOTE: 2,
    ApiKey.BEGIN_QUORUM_EPOCH: 1,
    ApiKey.END_QUORUM_EPOCH: 1,
    ApiKey.FETCH: 17,
    ApiKey.FETCH_SNAPSHOT: 1,
}
Fields = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One request to one node, and the only code that its answer may have."""

    name: str
    api: ApiKey
    fields: Fields
    code: ErrorCode


def of_one(api: ApiKey, partition: Fields, **more: Any) -> Fields:
    """A request about the one partition of the log."""
    if api is ApiKey.FETCH:
        topic: Fields = {"topic_id": TOPIC_ID, "partitions": [{"partition": 0} | partition]}
    elif api is ApiKey.FETCH_SNAPSHOT:
        topic = {"name": TOPIC, "partitions": [{"partition": 0} | partition]}
    else:
        topic = {"topic_name": TOPIC, "partitions": [{"partition_index": 0} | partition]}
    return {"topics": [topic]} | more


def asked(leader: Leader, cluster_id: str) -> dict[ApiKey, Fields]:
    """A sound request of each kind, of the present epoch."""
    epoch, voter = leader.epoch, {"cluster_id": cluster_id, "voter_id": -1}
    snapshot = {"end_offset": 7, "epoch": 1}
    return {
        ApiKey.VOTE: of_one(
            ApiKey.VOTE,
            {"replica_epoch": epoch, "replica_id": STRANGER, "last_offset_epoch": 0,
             "last_offset": 0, "pre_vote": True},
            **voter,
        ),
        ApiKey.BEGIN_QUORUM_EPOCH: of_one(
            ApiKey.BEGIN_QUORUM_EPOCH,
            {"leader_id": leader.node_id, "leader_epoch": epoch},
            **voter,
        ),
        ApiKey.END_QUORUM_EPOCH: of_one(
            ApiKey.END_QUORUM_EPOCH,
            {"leader_id": leader.node_id, "leader_epoch": epoch},
            cluster_id=cluster_id,
        ),
        ApiKey.FETCH: of_one(
            ApiKey.FETCH,
            {"current_leader_epoch": epoch, "fetch_offset": 0, "last_fetched_epoch": 0},
            cluster_id=cluster_id, max_wait_ms=0, max_bytes=1,
            replica_state={"replica_id": STRANGER},
        ),
        ApiKey.FETCH_SNAPSHOT: of_one(
            ApiKey.FETCH_SNAPSHOT,
            {"current_leader_epoch": epoch, "snapshot_id": snapshot, "position": 0},
            cluster_id=cluster_id, replica_id=STRANGER, max_bytes=100,
        ),
    }  # fmt: skip


def two_topics(fields: Fields) -> None:
    fields["topics"] *= 2


def two_partitions(fields: Fields) -> None:
    fields["topics"][0]["partitions"] *= 2


def no_topic(fields: Fields) -> None:
    fields["topics"] = []


def no_partition(fields: Fields) -> None:
    fields["topics"][0]["partitions"] = []


SHAPES = (two_topics, two_partitions, no_topic, no_partition)


def changed(fields: Fields, change: Callable[[Fields], None]) -> Fields:
    copied = deepcopy(fields)
    change(copied)
    return copied


def set_in(fields: Fields, **partition: Any) -> Fields:
    return changed(fields, lambda made: made["topics"][0]["partitions"][0].update(partition))


def everywhere(sound: dict[ApiKey, Fields], leader: Leader) -> list[Case]:
    """What every node refuses."""
    cases = []
    for api, fields in sound.items():
        other = fields | {"cluster_id": "another"}
        cases.append(Case("N105", api, other, ErrorCode.INCONSISTENT_CLUSTER_ID))
        for shape in SHAPES:
            code = ErrorCode.INVALID_REQUEST
            cases.append(Case(shape.__name__, api, changed(fields, shape), code))
    vote, fetch = sound[ApiKey.VOTE], sound[ApiKey.FETCH]
    for name, partition in {
        "N107 pre-vote": {"replica_epoch": EPOCH_MAX, "pre_vote": True},
        "N107 vote": {"replica_epoch": EPOCH_MAX, "pre_vote": False},
        "a negative epoch": {"replica_epoch": -1},
        "a negative candidate": {"replica_id": -1},
        "a last epoch that is not below": {"last_offset_epoch": EPOCH_MAX, "pre_vote": False},
    }.items():
        cases.append(Case(name, ApiKey.VOTE, set_in(vote, **partition), ErrorCode.INVALID_REQUEST))
    for epoch, code in (
        (EPOCH_MAX, ErrorCode.INVALID_REQUEST),
        (EPOCH_MAX - 1, ErrorCode.INVALID_REQUEST),
        (leader.epoch + 900, ErrorCode.NONE),
    ):
        refused = ErrorCode.INVALID_REQUEST
        fields = set_in(vote, replica_epoch=epoch, last_offset=FAR, pre_vote=False)
        cases.append(Case(f"a stranger's epoch {epoch}", ApiKey.VOTE, fields, code))
        for api in (ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH):
            fields = set_in(sound[api], leader_epoch=epoch, leader_id=STRANGER)
            cases.append(Case(f"a stranger's epoch {epoch}", api, fields, refused))
    for api in (ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH):
        fields = set_in(sound[api], leader_epoch=EPOCH_MAX)
        cases.append(Case("in a voter's name", api, fields, ErrorCode.INVALID_REQUEST))
    fields = set_in(vote, replica_epoch=EPOCH_MAX, replica_id=leader.node_id, pre_vote=False)
    cases.append(Case("in a voter's name", ApiKey.VOTE, fields, ErrorCode.INVALID_REQUEST))
    for name, partition in {
        "a negative offset": {"fetch_offset": -7},
        "a negative fetched epoch": {"last_fetched_epoch": -7},
        "a fetched epoch above the current": {"last_fetched_epoch": EPOCH_MAX},
    }.items():
        made = set_in(fetch, **partition)
        cases.append(Case(name, ApiKey.FETCH, made, ErrorCode.INVALID_REQUEST))
    return cases


def at_the_leader(sound: dict[ApiKey, Fields], epoch: int) -> list[Case]:
    """What only a leader looks at."""
    fetch, snapshot = sound[ApiKey.FETCH], sound[ApiKey.FETCH_SNAPSHOT]
    later, older = {"current_leader_epoch": EPOCH_MAX}, {"current_leader_epoch": epoch - 1}
    found = [
        Case("N108", ApiKey.FETCH_SNAPSHOT, snapshot, ErrorCode.SNAPSHOT_NOT_FOUND),
        Case(
            "a negative position",
            ApiKey.FETCH_SNAPSHOT,
            set_in(snapshot, position=-1),
            ErrorCode.POSITION_OUT_OF_RANGE,
        ),
        Case(
            "an absurd position of nothing",
            ApiKey.FETCH_SNAPSHOT,
            set_in(snapshot, position=FAR),
            ErrorCode.SNAPSHOT_NOT_FOUND,
        ),
    ]
    for api, fields in ((ApiKey.FETCH, fetch), (ApiKey.FETCH_SNAPSHOT, snapshot)):
        unknown, fenced = ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH
        found += [
            Case("a later epoch", api, set_in(fields, **later), unknown),
            Case("an older epoch", api, set_in(fields, **older), fenced),
        ]
    return found


def codes(answer: Any) -> set[int]:
    topics = getattr(answer, "topics", None) or getattr(answer, "responses", None) or []
    found = {one.error_code for topic in topics for one in topic.partitions}
    return (found | {answer.error_code}) - {0}


def disks(quorum: Quorum) -> dict[int, bytes]:
    return {
        one: (node.metadata / "quorum-state").read_bytes()
        for one, node in quorum.controllers.items()
    }


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
async def test_nothing_of_a_bad_request_moves_a_quorum(tmp_path: Path, is_dynamic: bool) -> None:
    plan = Plan(TidemarkController, is_dynamic, has_links=False)
    async with Quorum(tmp_path, plan) as quorum:
        leader = await quorum.settled()
        sound = asked(leader, quorum.membership.cluster_id)
        follower = next(one for one in quorum.controllers if one != leader.node_id)
        to = [(leader.node_id, one) for one in everywhere(sound, leader)]
        to += [(follower, one) for one in everywhere(sound, leader)]
        to += [(leader.node_id, one) for one in at_the_leader(sound, leader.epoch)]
        before = disks(quorum)
        wrong = []
        for node_id, case in to:
            answer = await quorum.talk(node_id).ask(
                case.api, case.fields, timeout_s=10, version=VERSIONS[case.api]
            )
            if codes(answer) != {case.code} - {ErrorCode.NONE}:
                wrong.append((node_id, case.name, case.api.name, codes(answer)))
            if case.api is ApiKey.VOTE and case.fields["topics"]:
                assert not any(
                    one.vote_granted for topic in answer.topics for one in topic.partitions
                )
        assert wrong == []
        same = await quorum.leader()
        assert (same.node_id, same.epoch) == (leader.node_id, leader.epoch)
        assert disks(quorum) == before
        quorum.controllers[leader.node_id].kill()
        assert (await quorum.leader(above=leader.epoch)).node_id != leader.node_id
        await until_registered(quorum, seed=leader.epoch)
