"""Messages of the quorum survive the wire in every version; garbage is refused."""

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_client.requests import Answer, UnreadableAnswerError, served_versions
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey, response_header_version
from kafka_protocol.wire.codec import request as request_codec
from kafka_protocol.wire.codec import response as response_codec
from metadata_topic.quorum.log.fetched import checked_prefix
from metadata_topic.quorum.wire.peers import call_of
from metadata_topic.quorum.wire.requests import (
    FETCH_BYTES_MAX,
    WAIT_MS_MAX,
    Refused,
    admit,
    is_sayable,
    write_request,
)
from metadata_topic.quorum.wire.responses import UnreadableAnswer, read_answer, write_answer
from metadata_topic.quorum.wire.rpc import VERSIONS, WireIdentity, api_of
from metadata_topic.raft.messages import (
    IGNORES_HIGH_WATERMARK,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EpochEnd,
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
from tests.support.samples.any_message import versions_and_values

IDENTITY = WireIdentity("cluster", "CONTROLLER")


def read_response(request: Request, version: int, frame: bytes) -> Any:
    """What becomes of a frame that answers the request."""
    call = call_of(request, IDENTITY, lambda _: None, 0)
    return call.result_of(Answer(call.api_key, version, frame, lambda: None))


MAX32, MAX64 = 2**31 - 1, 2**62

ids = st.integers(0, MAX32)
epochs = st.integers(0, MAX32)
offsets = st.integers(0, MAX64)
directories = st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16)
keys = st.builds(ReplicaKey, ids, directories)
some_key = keys | st.just(ReplicaKey(-1))
hosts = st.from_regex(r"[a-z0-9.\-]{1,60}", fullmatch=True)
snapshot_ids = st.builds(SnapshotId, offsets, epochs)


def nodes(node_id: int) -> st.SearchStrategy[Node]:
    return st.builds(Node, st.just(node_id), hosts, st.integers(1, 65_535))


def with_leader(cls: Any, **fields: Any) -> st.SearchStrategy[Any]:
    return ids.flatmap(
        lambda leader: st.builds(
            cls, leader_id=st.just(leader), leader=st.none() | nodes(leader), **fields
        )
    )


fetches = epochs.flatmap(
    lambda epoch: st.builds(
        FetchRequest,
        some_key,
        st.just(epoch),
        offsets,
        st.integers(0, epoch),
        st.integers(-1, IGNORES_HIGH_WATERMARK),
        st.integers(0, WAIT_MS_MAX),
        st.integers(0, FETCH_BYTES_MAX),
    )
)
requests: st.SearchStrategy[Request] = st.one_of(
    st.builds(VoteRequest, epochs, keys, some_key, epochs, offsets, st.booleans()),
    with_leader(BeginQuorumEpochRequest, epoch=epochs, voter=some_key),
    with_leader(
        EndQuorumEpochRequest, epoch=epochs, successors=st.lists(keys, max_size=5).map(tuple)
    ),
    fetches,
    st.builds(FetchSnapshotRequest, some_key, epochs, snapshot_ids, offsets, ids),
)

standings = st.just(Standing(0)) | with_leader(Standing, epoch=epochs)
errors = st.sampled_from(list(ErrorCode))
ends = st.none() | st.builds(EpochEnd, epochs, offsets)


def answers_to(request: Request) -> st.SearchStrategy[Response]:
    match request:
        case VoteRequest():
            return st.builds(VoteResponse, errors, standings, st.booleans())
        case BeginQuorumEpochRequest():
            return st.builds(BeginQuorumEpochResponse, errors, standings)
        case EndQuorumEpochRequest():
            return st.builds(EndQuorumEpochResponse, errors, standings)
        case FetchRequest():
            marks = st.integers(-1, MAX64)
            return st.builds(
                FetchResponse, errors, standings, marks, marks, ends, st.none() | snapshot_ids
            )
        case _:
            return st.binary(max_size=50).flatmap(
                lambda data: st.builds(
                    FetchSnapshotResponse,
                    errors,
                    standings,
                    snapshot_ids,
                    st.integers(len(data) + 100, MAX64),
                    st.integers(0, 100),
                    st.just(data),
                )
            )


def as_version_says(request: Request, version: int) -> Request:
    """What is left of a request in a version."""
    if isinstance(request, FetchRequest):
        if version < 17:
            request = replace(request, replica=ReplicaKey(request.replica.id))
        if version < 18:
            request = replace(request, high_watermark=IGNORES_HIGH_WATERMARK)
    elif version == 0:
        match request:
            case VoteRequest():
                candidate = ReplicaKey(request.candidate.id)
                request = replace(request, candidate=candidate, voter=ReplicaKey(-1))
            case BeginQuorumEpochRequest():
                request = replace(request, voter=ReplicaKey(-1), leader=None)
            case EndQuorumEpochRequest():
                named = tuple(ReplicaKey(key.id) for key in request.successors)
                request = replace(request, successors=named, leader=None)
            case FetchSnapshotRequest():
                request = replace(request, replica=ReplicaKey(request.replica.id))
    return request


def over_the_wire(request: Request, version: int) -> Request | Refused:
    api_key = api_of(request)
    codec = request_codec(api_key)
    data = codec.encode(write_request(request, version, IDENTITY), version)
    body, end = codec.decode(data, version)
    assert end == len(data)
    return admit(api_key, version, body, IDENTITY, lambda: Standing(0))


@given(requests)
def test_a_request_is_the_same_behind_the_wire(request: Request) -> None:
    known = VERSIONS[api_of(request)]
    for version in range(known.first, known.last + 1):
        if is_sayable(request, version):
            assert over_the_wire(request, version) == as_version_says(request, version)


def has_addresses(request: Request, version: int) -> bool:
    return version >= (17 if isinstance(request, FetchRequest) else 1)


@given(st.data(), requests)
def test_an_answer_is_the_same_behind_the_wire(data: st.DataObject, request: Request) -> None:
    answer = data.draw(answers_to(request))
    api_key = api_of(request)
    codec, known = response_codec(api_key), VERSIONS[api_key]
    for version in range(known.first, known.last + 1):
        encoded = codec.encode(write_answer(answer, version), version)
        expected = answer
        if not has_addresses(request, version):
            standing = replace(answer.standing, leader=None)
            expected = replace(answer, standing=standing)
        body, end = codec.decode(encoded, version)
        assert end == len(encoded)
        assert read_answer(request, body) == expected
        frame = bytes(4) + b"\0" * response_header_version(api_key, version) + encoded
        assert read_response(request, version, frame + b"surplus") == expected
        for size in range(4, len(frame)):
            assert isinstance(read_response(request, version, frame[:size]), UnreadableAnswerError)


@given(requests, st.binary(max_size=300))
def test_garbage_is_no_answer(request: Request, garbage: bytes) -> None:
    for version in range(VERSIONS[api_of(request)].first, VERSIONS[api_of(request)].last + 1):
        read_response(request, version, bytes(4) + garbage)
    with contextlib.suppress(ConnectionError):
        served_versions(Answer(ApiKey.API_VERSIONS, 3, bytes(4) + garbage, lambda: None))


@pytest.mark.parametrize("api_key", list(VERSIONS))
@given(st.data())
def test_any_decoded_request_is_admitted_or_refused(api_key: ApiKey, data: st.DataObject) -> None:
    version, body = data.draw(versions_and_values(request_codec(api_key).name))
    if data.draw(st.booleans()):
        body.cluster_id = None
    made = admit(api_key, version, body, IDENTITY, lambda: Standing(3, 1, Node(1, "h", 1)))
    if isinstance(made, Refused):
        response_codec(api_key).encode(made.answer, version)
    else:
        assert api_of(made) == api_key


@given(st.data(), requests)
def test_any_decoded_answer_is_read_or_refused(data: st.DataObject, request: Request) -> None:
    _, body = data.draw(versions_and_values(response_codec(api_of(request)).name))
    try:
        answer = read_answer(request, body)
    except UnreadableAnswer:
        return
    assert answer.standing.epoch >= -1


@given(st.binary(max_size=400))
def test_garbage_has_no_good_prefix_or_says_why(garbage: bytes) -> None:
    checked = checked_prefix(garbage)
    assert garbage.startswith(checked.data)
    assert checked.batches or not garbage or checked.fault
