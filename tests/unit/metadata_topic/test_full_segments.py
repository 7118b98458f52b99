"""A segment of the metadata log is flushed before the next one begins, and no loop waits for it."""

from pathlib import Path

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.records import make
from metadata_topic.quorum.active.decisions import Done, Outcome
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.effects import FlushLog, Send
from metadata_topic.raft.events import Flushed, SegmentFull
from metadata_topic.raft.messages import BatchFacts, FetchRequest, FetchResponse
from runtime.disk import Disk, OpenFile
from tests.support.worlds.driven_quorum import DrivenNode, DrivenQuorum
from tests.support.worlds.pools import HeldPool
from tests.support.worlds.replica_quorum import ReplicaQuorum
from tests.support.worlds.scripted_core import ScriptedCore, leading

SEGMENT_BYTES = 2_000


def segments(node: DrivenNode) -> list[int]:
    """Sizes of its segments, oldest first."""
    return [path.stat().st_size for path in sorted(node.directory.glob("*.log"))]


class CountingDisk(Disk):
    """Counts fsyncs of the log's segments."""

    def __init__(self) -> None:
        super().__init__()
        self.fsyncs = 0

    def fsync(self, file: OpenFile) -> None:
        self.fsyncs += str(file.path).endswith(".log")
        super().fsync(file)


def test_a_controller_waits_with_its_next_append_where_the_loop_would_wait(tmp_path: Path) -> None:
    """The others commit while its own disk hangs; its segment grows to twice its size, not more."""
    quorum = ReplicaQuorum(tmp_path, [1, 2, 3])
    quorum.config = MetadataLogConfig(segment_bytes=SEGMENT_BYTES, append_linger_ms=0)
    pools = {node_id: HeldPool(is_holding=False) for node_id in quorum.members}
    for node_id, node in quorum.members.items():
        node.pool, node.disk = pools[node_id], CountingDisk()
    quorum.start()
    leader = quorum.elect_active()
    quorum.advance(500)
    pool, disk = pools[leader.id], leader.disk
    assert isinstance(disk, CountingDisk)
    pool.is_holding = True
    fsyncs = disk.fsyncs
    answers: list[Outcome[None]] = []
    for number in range(40):
        record = make("TopicRecord", name=f"t{number:0>80}", topic_id=bytes([number + 1]) * 16)
        leader.replica.submit(
            lambda _image, record=record: ControllerResult((record,), None), answers.append
        )
        quorum.advance(20)
    assert 5 < len(answers) < 40
    assert disk.fsyncs == fsyncs, "the loop has made none"
    [size_bytes] = segments(leader)
    assert SEGMENT_BYTES < size_bytes <= 2 * SEGMENT_BYTES
    pool.stop_holding()
    quorum.advance(2_000)
    assert len(answers) == 40
    assert all(isinstance(answer, Done) for answer in answers)
    assert leader.leads
    assert len(segments(leader)) > 1
    assert all(size <= 2 * SEGMENT_BYTES for size in segments(leader))


def test_a_broker_flushes_a_full_segment_and_fetches_on_only_then(tmp_path: Path) -> None:
    quorum = DrivenQuorum(tmp_path, [1], observers=[2])
    quorum.config = MetadataLogConfig(segment_bytes=SEGMENT_BYTES)
    broker = quorum.members[2]
    broker.pool, broker.disk = HeldPool(is_holding=False), CountingDisk()
    quorum.start()
    leader = quorum.elect()
    quorum.advance(1_000)
    assert isinstance(broker.disk, CountingDisk)
    fsyncs = broker.disk.fsyncs
    while segments(leader) == [leader.opened.log.size_bytes]:
        leader.propose_noop()
        quorum.advance(100)
        if broker.opened.log.size_bytes < SEGMENT_BYTES:
            assert broker.disk.fsyncs == fsyncs, "nobody counts it: it is not flushed"
    leader.propose_noop()
    quorum.advance(1_000)
    assert broker.log_bytes == leader.log_bytes
    assert len(segments(broker)) == 2
    assert broker.disk.fsyncs == fsyncs + 1


def test_a_broker_asks_for_nothing_while_a_full_segment_is_being_flushed() -> None:
    node = ScriptedCore(9, config=RaftConfig(can_vote=False))
    node.flushes = False
    first = node.follow()
    batch = BatchFacts(0, 1, 1)
    answer = FetchResponse(ErrorCode.NONE, leading(1, 1), 0, 0, batches=(batch,), data=b"x")
    node.answer(first, answer)
    assert len(node.take(FetchRequest)) == 1
    assert node.wanted(FlushLog) == []
    node.step(SegmentFull())
    assert node.wanted(FlushLog) == [FlushLog()]
    [*_, on_the_way] = node.wanted(Send)
    more = FetchResponse(
        ErrorCode.NONE, leading(1, 1), 0, 0, batches=(BatchFacts(1, 2, 1),), data=b"x"
    )
    node.answer(on_the_way, more)
    node.run_until(node.now_ms + 1_000)
    node.step(Flushed(1))
    assert node.take(FetchRequest) == []
    assert node.wanted(FlushLog) == [FlushLog()] * 2
    node.step(Flushed(2))
    assert len(node.take(FetchRequest)) == 1
    assert node.wanted(FlushLog) == [FlushLog()] * 2
