"""Answers of other controllers: what is not about the question, or makes no sense, is none.

Each answer goes over the wire in the newest version, changed in one place.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.codec import response
from metadata_topic.quorum.wire.responses import (
    UnreadableAnswer,
    read_answer,
    records_of,
    write_answer,
)
from metadata_topic.quorum.wire.rpc import VERSIONS, api_of
from metadata_topic.raft.messages import (
    ANY_REPLICA,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Node,
    Request,
    Response,
    SnapshotId,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.voters import ReplicaKey

ME = ReplicaKey(9, b"\7" * 16)
LEADER = Node(4, "leader", 9093)
STANDING = Standing(7, LEADER.id, LEADER)
SNAPSHOT = SnapshotId(40, 3)
NONE = ErrorCode.NONE

ASKED: dict[str, tuple[Request, Response]] = {
    "vote": (
        VoteRequest(5, ME, ANY_REPLICA, 2, 100, pre_vote=False),
        VoteResponse(NONE, STANDING, granted=True),
    ),
    "begin": (
        BeginQuorumEpochRequest(5, ME.id, ANY_REPLICA, None),
        BeginQuorumEpochResponse(NONE, STANDING),
    ),
    "end": (
        EndQuorumEpochRequest(5, ME.id, (), None),
        EndQuorumEpochResponse(NONE, STANDING),
    ),
    "fetch": (FetchRequest(ME, 5, 100, 2), FetchResponse(NONE, STANDING, 95, 10)),
    "snapshot": (
        FetchSnapshotRequest(ME, 5, SNAPSHOT, 3, 10),
        FetchSnapshotResponse(NONE, STANDING, SNAPSHOT, 30, 3, b"0123456789"),
    ),
}
each = pytest.mark.parametrize("name", ASKED)


def answered(name: str, change: Callable[[Any], None] = lambda body: None) -> Response:
    """What the asker makes of an answer that is changed on its way."""
    request, answer = ASKED[name]
    return read_answer(request, on_the_wire(name, answer, change))


def on_the_wire(name: str, answer: Response, change: Callable[[Any], None]) -> Any:
    api_key = api_of(ASKED[name][0])
    version = VERSIONS[api_key].last
    body = deepcopy(write_answer(answer, version))
    change(body)
    return response(api_key).decode(response(api_key).encode(body, version), version)[0]


def topics(body: Any) -> Any:
    return getattr(body, "responses", None) or body.topics


def partition(body: Any) -> Any:
    return topics(body)[0].partitions[0]


def leader(body: Any) -> Any:
    return getattr(partition(body), "current_leader", None) or partition(body)


@each
def test_an_answer_says_what_was_said(name: str) -> None:
    assert answered(name) == ASKED[name][1]


# -- errors -----------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("code", [-1, 6, 42, 74, 104, 125, 9_999, -7])
def test_an_error_is_that_error_and_an_unknown_one_is_no_success(name: str, code: int) -> None:
    known = code if code in set(ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR

    def of_the_partition(body: Any) -> None:
        partition(body).error_code = code

    answer = answered(name, of_the_partition)
    assert (answer.error, answer.standing) == (known, STANDING)


@each
@pytest.mark.parametrize("code", [-1, 35, 42, 104, 9_999])
def test_an_error_of_the_whole_answer_leaves_nothing_of_the_rest(name: str, code: int) -> None:
    """Its sender says nothing of itself: it passes for one of the epoch that was asked in."""
    known = code if code in set(ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
    request, answer = ASKED[name]

    def whole(body: Any) -> None:
        body.error_code = code

    failed = answered(name, whole)
    assert (type(failed), failed.error, failed.standing) == (
        type(answer),
        known,
        Standing(request.epoch),
    )
    assert getattr(failed, "granted", False) is False
    assert getattr(failed, "data", b"") == b""
    assert getattr(failed, "snapshot_id", None) in (None, SNAPSHOT)


# -- about something else ---------------------------------------------------------------------


def no_topic(body: Any) -> None:
    topics(body).clear()


def two_topics(body: Any) -> None:
    topics(body).append(deepcopy(topics(body)[0]))


def no_partition(body: Any) -> None:
    topics(body)[0].partitions.clear()


def two_partitions(body: Any) -> None:
    topics(body)[0].partitions.append(deepcopy(partition(body)))


def another_partition(body: Any) -> None:
    found = partition(body)
    setattr(found, "index" if hasattr(found, "index") else "partition_index", 1)


def another_topic(body: Any) -> None:
    topic = topics(body)[0]
    if hasattr(topic, "topic_id"):
        topic.topic_id = b"t" * 16
    else:
        setattr(topic, "name" if hasattr(topic, "name") else "topic_name", "orders")


ELSEWHERE = [no_topic, two_topics, no_partition, two_partitions, another_partition, another_topic]


@each
@pytest.mark.parametrize("change", ELSEWHERE, ids=lambda change: change.__name__)
def test_an_answer_about_something_else_is_none(name: str, change: Callable[[Any], None]) -> None:
    with pytest.raises(UnreadableAnswer, match="metadata log"):
        answered(name, change)


@pytest.mark.parametrize("change", ELSEWHERE, ids=lambda change: change.__name__)
def test_records_of_something_else_are_not_looked_at(change: Callable[[Any], None]) -> None:
    answer = FetchResponse(NONE, STANDING, data=b"records")
    assert records_of(on_the_wire("fetch", answer, lambda body: None)) == b"records"
    assert records_of(on_the_wire("fetch", answer, change)) == b""


# -- who leads --------------------------------------------------------------------------------


@each
@pytest.mark.parametrize(("field", "number"), [("leader_id", -2), ("leader_epoch", -2)])
def test_a_leader_or_an_epoch_that_cannot_be_makes_no_answer(
    name: str, field: str, number: int
) -> None:
    with pytest.raises(UnreadableAnswer, match="leader"):
        answered(name, lambda body: setattr(leader(body), field, number))


@each
def test_the_leaders_address_is_that_of_its_id(name: str) -> None:
    def others_too(body: Any) -> None:
        (its,) = body.node_endpoints
        body.node_endpoints.insert(0, type(its)(node_id=3, host="another", port=1))
        body.node_endpoints.append(type(its)(node_id=5, host="a-third", port=2))

    def only_others(body: Any) -> None:
        body.node_endpoints[0].node_id = 3

    assert answered(name, others_too).standing == STANDING
    assert answered(name, only_others).standing == Standing(7, LEADER.id, None)


@each
def test_the_lowest_id_and_an_unknown_epoch_are_taken_as_they_are(name: str) -> None:
    def changed(body: Any) -> None:
        leader(body).leader_id = body.node_endpoints[0].node_id = 0
        leader(body).leader_epoch = -1

    assert answered(name, changed).standing == Standing(-1, 0, Node(0, "leader", 9093))


@each
def test_where_nobody_leads_no_address_is_the_leaders(name: str) -> None:
    def nobody(body: Any) -> None:
        leader(body).leader_id = body.node_endpoints[0].node_id = -1

    assert answered(name, nobody).standing == Standing(7)


@each
@pytest.mark.parametrize(("host", "port"), [("", 9093), ("h" * 256, 9093), ("leader", 0)])
def test_an_address_where_nobody_can_listen_is_none(name: str, host: str, port: int) -> None:
    def moved(body: Any) -> None:
        body.node_endpoints[0].host, body.node_endpoints[0].port = host, port

    assert answered(name, moved).standing == Standing(7, LEADER.id, None)


# -- offsets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["high_watermark", "log_start_offset"])
def test_offsets_below_minus_one_make_no_answer(field: str) -> None:
    with pytest.raises(UnreadableAnswer, match="negative"):
        answered("fetch", lambda body: setattr(partition(body), field, -2))
    assert answered("fetch", lambda body: setattr(partition(body), field, -1)).error == NONE


@pytest.mark.parametrize("field", ["diverging_epoch", "snapshot_id"])
@pytest.mark.parametrize(("epoch", "end"), [(3, -1), (-1, 40)])
def test_half_of_a_pair_makes_no_answer(field: str, epoch: int, end: int) -> None:
    def half(body: Any) -> None:
        cls = type(partition(body))
        pair = cls.DivergingEpoch if field == "diverging_epoch" else cls.SnapshotId
        setattr(partition(body), field, pair(epoch=epoch, end_offset=end))

    with pytest.raises(UnreadableAnswer, match="half a pair"):
        answered("fetch", half)


@pytest.mark.parametrize(("size", "position"), [(12, 3), (-1, 3), (30, -1), (30, 21)])
def test_a_chunk_outside_of_its_snapshot_makes_no_answer(size: int, position: int) -> None:
    def outside(body: Any) -> None:
        partition(body).size, partition(body).position = size, position

    with pytest.raises(UnreadableAnswer, match="bytes"):
        answered("snapshot", outside)


def test_the_last_chunk_ends_with_its_snapshot() -> None:
    def last(body: Any) -> None:
        partition(body).size, partition(body).position = 30, 20

    answer = answered("snapshot", last)
    assert isinstance(answer, FetchSnapshotResponse)
    assert (answer.size_bytes, answer.position, len(answer.data)) == (30, 20, 10)
