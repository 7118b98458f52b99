"""Our client side asks a controller of Apache Kafka; all that it sends is understood."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.quorum.log.fetched import checked_prefix
from metadata_topic.quorum.wire.rpc import WireIdentity
from metadata_topic.raft.messages import (
    ANY_REPLICA,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Node,
    SnapshotId,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.voters import ReplicaKey
from tests.support.kafka.peer import KafkaPeer
from tests.support.kafka.tools import require_kafka_tools
from tests.support.quorum.listener import Asker, asking

pytestmark = [pytest.mark.lasts(seconds=15), pytest.mark.jvm, pytest.mark.slow]

CLUSTER = WireIdentity("tidemarkPeerClusterId0")
STRANGER = ReplicaKey(77, b"\7" * 16)
READER = ReplicaKey(-1)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    require_kafka_tools()
    data: Path = tmp_path_factory.mktemp("kafka")
    peer = KafkaPeer(data, ("metadata.log.max.record.bytes.between.snapshots=1000",))
    peer.start()
    yield peer
    peer.kill()


async def leader_epoch(asker: Asker, kafka: KafkaPeer) -> int:
    """The first answer says where the quorum stands, whatever it refuses."""
    answer = await asker.ask(kafka.controller_port, FetchRequest(READER, 0, 0, 0, max_wait_ms=0))
    assert answer.error == ErrorCode.FENCED_LEADER_EPOCH
    assert answer.standing.leader == Node(1, "127.0.0.1", kafka.controller_port)
    return answer.standing.epoch


async def test_a_leader_refuses_a_pre_vote_and_says_that_it_leads(kafka: KafkaPeer) -> None:
    async with asking(CLUSTER) as asker:
        epoch = await leader_epoch(asker, kafka)
        answer = await asker.ask(
            kafka.controller_port, VoteRequest(epoch, STRANGER, ANY_REPLICA, epoch, 10**6, True)
        )
    assert isinstance(answer, VoteResponse)
    assert (answer.error, answer.granted) == (ErrorCode.NONE, False)
    assert (answer.standing.epoch, answer.standing.leader_id) == (epoch, 1)


async def test_another_cluster_is_refused(kafka: KafkaPeer) -> None:
    async with asking(WireIdentity("another")) as asker:
        for request in (
            VoteRequest(1, STRANGER, ANY_REPLICA, 1, 10, True),
            FetchRequest(READER, 1, 0, 0),
            FetchSnapshotRequest(READER, 1, SnapshotId(1, 1), 0, 100),
        ):
            answer = await asker.ask(kafka.controller_port, request)
            assert answer.error == ErrorCode.INCONSISTENT_CLUSTER_ID


async def test_snapshot_and_log_arrive_whole(kafka: KafkaPeer) -> None:
    async with asking(CLUSTER) as asker:
        port = kafka.controller_port
        epoch = await leader_epoch(asker, kafka)
        offset, last_epoch = 0, 0
        first = await asker.ask(port, FetchRequest(READER, epoch, 0, 0, max_wait_ms=0))
        assert isinstance(first, FetchResponse)
        if first.snapshot_id is not None:
            offset, last_epoch = first.snapshot_id
            await fetch_snapshot(asker, port, epoch, first.snapshot_id)
        while True:
            answer = await asker.ask(port, FetchRequest(READER, epoch, offset, last_epoch))
            assert isinstance(answer, FetchResponse)
            assert (answer.error, answer.fault) == (ErrorCode.NONE, None)
            if not answer.batches:
                break
            assert answer.batches[0].base_offset == offset
            offset, last_epoch = answer.batches[-1].end_offset, answer.batches[-1].epoch
            if offset >= answer.high_watermark:
                break
    assert last_epoch == epoch
    assert offset > 5


async def fetch_snapshot(asker: Asker, port: int, epoch: int, wanted: SnapshotId) -> None:
    data, size = b"", 1
    while len(data) < size:
        chunk = await asker.ask(port, FetchSnapshotRequest(READER, epoch, wanted, len(data), 300))
        assert isinstance(chunk, FetchSnapshotResponse)
        assert (chunk.error, chunk.snapshot_id, chunk.position) == (0, wanted, len(data))
        assert 0 < len(chunk.data) <= 300
        data, size = data + chunk.data, chunk.size_bytes
    checked = checked_prefix(data)
    assert (checked.fault, checked.data) == (None, data)
    assert checked.batches[-1].end_offset >= 2


async def test_an_unknown_snapshot_is_an_error_of_the_epoch_that_was_asked_in(
    kafka: KafkaPeer,
) -> None:
    async with asking(CLUSTER) as asker:
        epoch = await leader_epoch(asker, kafka)
        answer = await asker.ask(
            kafka.controller_port, FetchSnapshotRequest(READER, epoch, SnapshotId(1, 9), 0, 100)
        )
    assert answer.error in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.SNAPSHOT_NOT_FOUND)
    assert answer.standing.epoch == epoch
