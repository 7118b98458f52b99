"""Rows of KIP-630 about snapshots that are fetched and served, on the core of one node."""

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.effects import (
    DropChunks,
    InstallSnapshot,
    Respond,
    RespondChunk,
    Send,
    WriteChunk,
)
from metadata_topic.raft.events import (
    ChunkWritten,
    LogStartRaised,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotWritten,
)
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import (
    BatchFacts,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    SnapshotId,
    Standing,
    UpdateVoterRequest,
    VoterResponse,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey
from tests.support.worlds.scripted_core import ScriptedCore, key, leading, node_of

SNAPSHOT = SnapshotId(250, 1)
OTHER = SnapshotId(300, 1)
SIZE = 25
LEADER = leading(1, 1)


def chunk(position: int, data: bytes, snapshot_id: SnapshotId = SNAPSHOT) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(ErrorCode.NONE, LEADER, snapshot_id, SIZE, position, data)


def refusal(error: ErrorCode) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(error, LEADER, SNAPSHOT)


def fetching() -> tuple[ScriptedCore, Send]:
    """A follower that was sent to a snapshot, and its first request for it."""
    node = ScriptedCore()
    fetch = node.follow()
    node.answer(fetch, FetchResponse(ErrorCode.NONE, LEADER, -1, 250, snapshot_id=SNAPSHOT))
    (first,) = node.take(FetchSnapshotRequest)
    return node, first


def serving(*ids: SnapshotId, snapshot_max_bytes: int = 1 << 20) -> ScriptedCore:
    """A leader whose log begins at the first of its snapshots."""
    node = ScriptedCore(
        log=((1, 0), (0, 400)), config=RaftConfig(snapshot_max_bytes=snapshot_max_bytes)
    )
    node.lead()
    files = tuple(SnapshotFile(one, SIZE) for one in ids)
    for file in files:
        node.step(SnapshotWritten(file))
    node.step(LogStartRaised(ids[0].end_offset, files))
    return node


def asked(node: ScriptedCore, snapshot_id: SnapshotId, position: int, max_bytes: int = 10):
    (answer,) = node.ask(
        FetchSnapshotRequest(key(3), node.core.epoch, snapshot_id, position, max_bytes)
    )
    return answer


def test_k630_22_the_next_position_is_the_old_one_and_what_came() -> None:
    node, first = fetching()
    asked_for = [first.request.position]
    send, position = first, 0
    for data in (b"a" * 10, b"b" * 10, b"c" * 5):
        node.answer(send, chunk(position, data))
        position += len(data)
        assert node.take(FetchSnapshotRequest) == [], "not before the chunk is written"
        node.step(ChunkWritten(SNAPSHOT, position))
        if position < SIZE:
            (send,) = node.take(FetchSnapshotRequest)
            asked_for.append(send.request.position)
    assert asked_for == [0, 10, 20]
    assert node.wanted(InstallSnapshot) == [InstallSnapshot(SNAPSHOT, SIZE)]
    assert [(one.position, one.data) for one in node.wanted(WriteChunk)] == [
        (0, b"a" * 10),
        (10, b"b" * 10),
        (20, b"c" * 5),
    ]


@pytest.mark.parametrize(
    "answer",
    [chunk(0, b"x" * 10, OTHER), chunk(5, b"x" * 10), chunk(-1, b"x")],
    ids=["another snapshot", "another position", "a negative position"],
)
def test_k630_22_an_answer_with_another_id_or_position_changes_nothing(
    answer: FetchSnapshotResponse,
) -> None:
    node, first = fetching()
    node.answer(first, answer)
    assert node.wanted(WriteChunk) == []
    node.tick(node.now_ms + 20)
    (again,) = node.take(FetchSnapshotRequest)
    assert again.request == first.request


@pytest.mark.parametrize(
    "answer",
    [
        chunk(0, b""),
        chunk(0, b"x" * (SIZE + 1)),
        FetchSnapshotResponse(ErrorCode.NONE, LEADER, SNAPSHOT, -5, 0, b"x"),
    ],
    ids=["nothing", "more than there is", "a negative size"],
)
def test_bad_input_a_chunk_of_an_absurd_size_is_not_written(answer: FetchSnapshotResponse) -> None:
    """Also a part of N109: the download begins again."""
    node, first = fetching()
    node.answer(first, answer)
    assert node.wanted(WriteChunk) == []
    assert node.wanted(DropChunks) == [DropChunks()]
    node.tick(node.now_ms + 20)
    assert len(node.take(FetchRequest)) == 1, "back to Fetch"


def test_bad_input_a_size_that_changes_meanwhile_begins_anew() -> None:
    node, first = fetching()
    node.answer(first, chunk(0, b"a" * 10))
    node.step(ChunkWritten(SNAPSHOT, 10))
    (second,) = node.take(FetchSnapshotRequest)
    grown = FetchSnapshotResponse(ErrorCode.NONE, LEADER, SNAPSHOT, SIZE + 1, 10, b"b")
    node.answer(second, grown)
    assert len(node.wanted(WriteChunk)) == 1
    assert node.wanted(DropChunks) == [DropChunks()]


def test_k630_22_a_chunk_of_an_abandoned_download_is_not_used_by_the_next() -> None:
    node, first = fetching()
    node.answer(first, chunk(0, b"a" * 10))
    begin = BeginQuorumEpochRequest(2, 3, ReplicaKey(2), node_of(3))
    node.ask(begin)  # a new leader, while the first chunk is on its way to the disk
    assert node.wanted(DropChunks) == [DropChunks()]
    (fetch,) = node.take(FetchRequest)
    led_anew = leading(2, 3)
    node.answer(fetch, FetchResponse(ErrorCode.NONE, led_anew, -1, 250, snapshot_id=SNAPSHOT))
    (again,) = node.take(FetchSnapshotRequest)
    assert again.request.position == 0
    five = FetchSnapshotResponse(ErrorCode.NONE, led_anew, SNAPSHOT, SIZE, 0, b"b" * 5)
    node.answer(again, five)
    node.step(ChunkWritten(SNAPSHOT, 10))
    assert node.take(FetchSnapshotRequest) == [], "it is the first download's"
    node.step(ChunkWritten(SNAPSHOT, 5))
    (second,) = node.take(FetchSnapshotRequest)
    assert second.request.position == 5


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.SNAPSHOT_NOT_FOUND,
        ErrorCode.POSITION_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_k630_24_an_error_leads_back_to_fetch_and_restarts_the_download(
    error: ErrorCode,
) -> None:
    node, first = fetching()
    node.answer(first, chunk(0, b"a" * 10))
    node.step(ChunkWritten(SNAPSHOT, 10))
    (second,) = node.take(FetchSnapshotRequest)
    node.answer(second, refusal(error))
    assert node.wanted(DropChunks) == [DropChunks()]
    node.tick(node.now_ms + 20)
    (fetch,) = node.take(FetchRequest)
    assert fetch.request.offset == 0
    node.answer(fetch, FetchResponse(ErrorCode.NONE, LEADER, -1, 300, snapshot_id=OTHER))
    (again,) = node.take(FetchSnapshotRequest)
    assert (again.request.snapshot_id, again.request.position) == (OTHER, 0)


@pytest.mark.parametrize(
    ("error", "epoch", "leader"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 1),
        (ErrorCode.FENCED_LEADER_EPOCH, 2, 3),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, 0, -1),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, 1, 1),
    ],
)
def test_k630_24_an_error_of_the_epoch_writes_nothing(
    error: ErrorCode, epoch: int, leader: int
) -> None:
    node, first = fetching()
    standing = Standing(epoch) if leader < 0 else leading(epoch, leader)
    node.answer(first, FetchSnapshotResponse(error, standing, SNAPSHOT, SIZE, 0, b"x" * 10))
    assert node.wanted(WriteChunk) == []
    assert node.wanted(DropChunks) == [DropChunks()]
    assert node.core.epoch == max(epoch, 1)
    node.tick(node.now_ms + 20)
    assert len(node.take(FetchRequest)) == 1


def test_bad_input_a_chunk_of_an_older_epoch_changes_nothing() -> None:
    node, first = fetching()
    late = FetchSnapshotResponse(ErrorCode.NONE, Standing(0), SNAPSHOT, SIZE, 0, b"x" * 10)
    node.answer(first, late)
    assert node.wanted(WriteChunk) == []
    assert node.wanted(DropChunks) == []
    node.tick(node.now_ms + 20)
    (again,) = node.take(FetchSnapshotRequest)
    assert again.request == first.request


def test_k630_20_after_the_snapshot_fetch_continues_from_its_end_and_epoch() -> None:
    node, first = fetching()
    node.answer(first, chunk(0, b"x" * SIZE))
    node.step(ChunkWritten(SNAPSHOT, SIZE))
    assert node.take(FetchRequest) == [], "not while it is being installed"
    node.step(SnapshotInstalled(SnapshotFile(SNAPSHOT, SIZE), QuorumFacts()))
    (fetch,) = node.take(FetchRequest)
    assert (fetch.request.offset, fetch.request.last_fetched_epoch) == (250, 1)
    log = node.core.log
    assert (log.start_offset, log.end_offset, node.core.high_watermark) == (250, 250, 250)


def test_k630_20_chunks_and_their_installation_keep_the_leader() -> None:
    node, send = fetching()
    for position in range(SIZE):
        node.run_until(node.now_ms + 1_900)  # of a fetch timeout of 2 s
        node.answer(send, chunk(position, b"x"))
        node.step(ChunkWritten(SNAPSHOT, position + 1))
        *_, send = node.wanted(Send)
        if isinstance(send.request, UpdateVoterRequest):  # a static voter tells of itself once
            node.answer(send, VoterResponse(ErrorCode.NONE, LEADER))
            *_, send = node.wanted(Send)
    assert node.wanted(InstallSnapshot) == [InstallSnapshot(SNAPSHOT, SIZE)]
    node.run_until(node.now_ms + 1_900)
    node.step(SnapshotInstalled(SnapshotFile(SNAPSHOT, SIZE), QuorumFacts()))
    node.run_until(node.now_ms + 1_900)
    assert node.core.role is Role.FOLLOWER, "the leader could not be asked meanwhile"
    node.run_until(node.now_ms + 200)
    assert node.core.role is Role.PROSPECTIVE


def test_bad_input_a_snapshot_below_what_is_committed_here_ends_the_node() -> None:
    node = ScriptedCore()
    fetch = node.follow()
    node.answer(fetch, node.records(BatchFacts(0, 300, 1), high_watermark=300))
    assert node.core.high_watermark == 300
    *_, fetch = node.take(FetchRequest)
    node.answer(fetch, FetchResponse(ErrorCode.NONE, LEADER, -1, 250, snapshot_id=SNAPSHOT))
    assert node.fatal == [
        f"the leader of epoch 1 asks to load snapshot {SNAPSHOT}, below 300, which is committed"
    ]
    assert node.take(FetchSnapshotRequest) == []


def test_bad_input_a_fetched_snapshot_that_is_damaged_is_fetched_again() -> None:
    """N109; that it never gets its name is test_fetched_snapshot_power_cuts' matter."""
    node, first = fetching()
    node.answer(first, chunk(0, b"x" * SIZE))
    node.step(ChunkWritten(SNAPSHOT, SIZE))
    node.step(SnapshotRefused(SNAPSHOT))
    assert node.reports == [f"fetched snapshot {SNAPSHOT} is damaged, fetched again"]
    assert node.core.log.end_offset == 0
    (fetch,) = node.take(FetchRequest)
    assert fetch.request.offset == 0


def test_k630_23_a_chunk_is_as_large_as_both_sides_allow() -> None:
    node = serving(SNAPSHOT, snapshot_max_bytes=8)
    small, large = asked(node, SNAPSHOT, 0, 5), asked(node, SNAPSHOT, 5, 1_000_000)
    assert isinstance(small, RespondChunk)
    assert isinstance(large, RespondChunk)
    assert (small.max_bytes, large.max_bytes) == (5, 8)


def test_k630_24_what_is_not_there_has_its_own_code() -> None:
    node = serving(SNAPSHOT)
    cases = {
        (SnapshotId(1, 1), 0): ErrorCode.SNAPSHOT_NOT_FOUND,
        (SnapshotId(0, 0), 0): ErrorCode.SNAPSHOT_NOT_FOUND,
        (SNAPSHOT, SIZE): ErrorCode.POSITION_OUT_OF_RANGE,
        (SNAPSHOT, -1): ErrorCode.POSITION_OUT_OF_RANGE,
    }
    for (snapshot_id, position), error in cases.items():
        answer = asked(node, snapshot_id, position)
        assert isinstance(answer, Respond)
        assert answer.response.error is error


def test_k630_25_a_snapshot_that_goes_while_it_is_fetched_is_not_found() -> None:
    node = serving(SNAPSHOT, OTHER)
    assert isinstance(asked(node, SNAPSHOT, 0), RespondChunk)
    node.step(LogStartRaised(OTHER.end_offset, (SnapshotFile(OTHER, SIZE),)))
    gone = asked(node, SNAPSHOT, 10)
    assert isinstance(gone, Respond)
    assert gone.response.error is ErrorCode.SNAPSHOT_NOT_FOUND
    fetch = FetchRequest(key(3), node.core.epoch, 0, 0)
    (answer,) = node.ask(fetch)
    assert isinstance(answer, Respond)
    assert isinstance(answer.response, FetchResponse)
    assert answer.response.snapshot_id == OTHER


def test_k630_19_an_offset_below_the_log_start_gets_the_newest_snapshot() -> None:
    node = serving(SNAPSHOT, OTHER)
    for offset, last in ((0, 0), (100, 1), (250, 0)):
        (answer,) = node.ask(FetchRequest(key(3), node.core.epoch, offset, last))
        assert isinstance(answer, Respond)
        assert isinstance(answer.response, FetchResponse)
        assert (answer.response.snapshot_id, answer.response.batches) == (OTHER, ())


@pytest.mark.parametrize("last_fetched_epoch", [0, 1])
def test_k630_19_an_empty_log_gets_a_snapshot_even_while_the_log_is_whole(
    last_fetched_epoch: int,
) -> None:
    node = ScriptedCore(log=((1, 0), (0, 400)))
    node.lead()
    node.step(SnapshotWritten(SnapshotFile(SNAPSHOT, SIZE)))
    (answer,) = node.ask(FetchRequest(key(3), node.core.epoch, 0, last_fetched_epoch))
    assert isinstance(answer, Respond)
    assert isinstance(answer.response, FetchResponse)
    assert answer.response.snapshot_id == SNAPSHOT


def test_k630_07_an_empty_log_with_a_snapshot_asks_in_the_snapshots_epoch() -> None:
    node, first = fetching()
    node.answer(first, chunk(0, b"x" * SIZE))
    node.step(ChunkWritten(SNAPSHOT, SIZE))
    node.step(SnapshotInstalled(SnapshotFile(SNAPSHOT, SIZE), QuorumFacts()))
    node.tick(node.now_ms + 10_000)
    pre_votes = [one for one in node.wanted(Send) if getattr(one.request, "pre_vote", False)]
    assert pre_votes
    assert {(one.request.last_epoch, one.request.end_offset) for one in pre_votes} == {(1, 250)}
