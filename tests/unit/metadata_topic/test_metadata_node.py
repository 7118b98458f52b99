import asyncio
import errno
from pathlib import Path

import pytest

from metadata_topic.controller.brokers import register_broker, unfence_broker
from metadata_topic.controller.errors import InvalidRequestError
from metadata_topic.controller.features import DEFAULT_FEATURES
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.topic_specs import TopicDefaults, TopicSpec
from metadata_topic.controller.topics import CreatedTopic, create_topics
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from metadata_topic.quorum.active.submit import DecisionTimedOut
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.errors import (
    MissingMetadataError,
    QuorumConfigError,
    UnreadableRecordError,
)
from metadata_topic.quorum.log.batches import data_batch
from metadata_topic.quorum.log.decision_batches import ContradictoryDecision
from metadata_topic.quorum.log.metadata_log import MetadataLog
from metadata_topic.quorum.node import MetadataNode, MetadataUnavailable
from metadata_topic.quorum.start.format import (
    NotFormattedError,
)
from metadata_topic.raft.messages import Node, Response, VoteRequest
from metadata_topic.raft.voters import ReplicaKey
from runtime.disk import Disk
from tests.support.samples.metadata import registration_of
from tests.support.worlds.metadata_home import forget_lines
from tests.support.worlds.node_home import DIRECTORY_ID, Home, a_topic, no_work
from tests.support.worlds.waiting import until


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_the_first_start_writes_leader_voters_and_bootstrap_records(home: Home) -> None:
    node = home.with_node(no_work)
    assert node.leader_epoch == 1
    assert node.kraft_version == 1
    assert node.image.features == DEFAULT_FEATURES
    assert node.image.controllers[1].id == 1
    # LEADER_CHANGE, KRAFT_VERSION, KRAFT_VOTERS; Begin, two features, a config, End; the controller
    assert node.image.provenance.end_offset == node.high_watermark == 9
    state = (home.metadata / "quorum-state").read_text()
    assert '"leaderId":1,"leaderEpoch":1' in state


def test_each_start_opens_a_new_epoch_and_keeps_what_was_there(home: Home) -> None:
    async def create(node: MetadataNode) -> None:
        await node.submit(a_topic(f"t{node.leader_epoch}", bytes([node.leader_epoch]) * 16))

    for epoch in (1, 2, 3):
        assert home.with_node(create).leader_epoch == epoch
    node = home.with_node(no_work)
    assert set(node.image.topics_by_name) == {"t1", "t2", "t3"}
    assert (home.metadata / "leader-epoch-checkpoint").read_text().splitlines()[1] == "4"


async def test_static_voters_give_kraft_version_0(tmp_path: Path) -> None:
    home = Home(tmp_path, standalone=False)
    node = home.node(static_voters=(Node(1, "localhost", 9093),))
    await node.begin()
    assert node.kraft_version == 0
    assert node.image.provenance.end_offset == 7
    assert '"currentVoters":[{"voterId":1}]' in (home.metadata / "quorum-state").read_text()


def test_subscribers_hear_of_a_commit_before_the_answer(home: Home) -> None:
    events: list[object] = []

    def subscriber(image: MetadataImage, delta: MetadataDelta) -> None:
        events.append(set(delta.created_topics))
        assert "a" in image.topics_by_name

    async def work(node: MetadataNode) -> None:
        node.subscribe(subscriber)
        await node.submit(a_topic("a", b"a" * 16))
        events.append("answered")

    home.with_node(work)
    assert events == [{b"a" * 16}, "answered"]


def test_decisions_at_once_see_each_other(home: Home) -> None:
    def create(image: MetadataImage) -> ControllerResult[list[CreatedTopic]]:
        return create_topics(
            image,
            [TopicSpec("a", assignments=())],
            defaults=TopicDefaults(),
            topic_ids=[home.ports.rng.uuid()],
            validate_config=lambda _name, _configs: None,
        )

    async def work(node: MetadataNode) -> None:
        epoch = await node.submit(lambda image: register_broker(image, registration_of(1)))
        await node.submit(lambda i: unfence_broker(i, broker_id=1, broker_epoch=epoch))
        answers = await asyncio.gather(*(node.submit(create) for _ in range(5)))
        assert sorted(answer[0].error is None for answer in answers) == [False] * 4 + [True]

    home.with_node(work)


def test_a_decision_that_refuses_writes_nothing(home: Home) -> None:
    def refuse(image: MetadataImage) -> ControllerResult[None]:
        raise InvalidRequestError("no")

    async def work(node: MetadataNode) -> None:
        end = node.log_end_offset
        with pytest.raises(InvalidRequestError):
            await node.submit(refuse)
        await node.submit(lambda image: ControllerResult((), None))
        assert node.log_end_offset == end

    home.with_node(work)


def test_records_that_cannot_be_replayed_never_reach_the_log(home: Home) -> None:
    def poison(image: MetadataImage) -> ControllerResult[None]:
        good = make("TopicRecord", name="half", topic_id=b"h" * 16)
        return ControllerResult((good, make("RemoveTopicRecord", topic_id=b"?" * 16)), None)

    async def work(node: MetadataNode) -> None:
        end = node.log_end_offset
        with pytest.raises(ContradictoryDecision):
            await node.submit(poison)
        assert node.log_end_offset == end
        await node.submit(a_topic("a", b"a" * 16))
        assert set(node.image.topics_by_name) == {"a"}

    home.with_node(work)
    assert set(home.with_node(no_work).image.topics_by_name) == {"a"}


def test_a_cancelled_caller_does_not_undo_a_decision(home: Home) -> None:
    async def work(node: MetadataNode) -> None:
        caller = asyncio.ensure_future(node.submit(a_topic("a", b"a" * 16)))
        await asyncio.sleep(0)
        caller.cancel()
        await node.submit(a_topic("b", b"b" * 16))
        assert set(node.image.topics_by_name) == {"a", "b"}

    home.with_node(work)


@pytest.mark.parametrize("operation", ["append", "fsync"])
def test_a_failing_disk_ends_the_node_and_nothing_unflushed_is_answered(
    home: Home, operation: str
) -> None:
    async def work(node: MetadataNode) -> None:
        home.disk.fail([operation], error=errno.EIO)
        for said in (DecisionTimedOut, MetadataUnavailable):  # the first may be on the disk
            with pytest.raises(said):
                await node.submit(a_topic("a", b"a" * 16))
        assert len(home.failures) == 1
        assert node.failure is not None
        assert "a" not in node.image.topics_by_name
        home.disk.heal()

    home.with_node(work)
    home.with_node(no_work)


def test_the_broker_of_a_controller_that_is_elected_again_serves_on(home: Home) -> None:
    """It sends itself no heartbeats: a session from the election on would end unheard."""

    async def work(node: MetadataNode) -> None:
        epoch = await node.submit(lambda image: register_broker(image, registration_of(1)))
        await node.submit(lambda image: unfence_broker(image, broker_id=1, broker_epoch=epoch))
        node._replica.driver.resign("for the test")
        await until(lambda: node.knows_active_controller and node.leader_epoch == 2)
        for _ in range(10):
            home.ports.scheduler.advance(2_000)
            await node.submit(lambda image: ControllerResult((), None))
        assert not node.image.brokers[1].fenced

    home.with_node(work)


def test_a_failing_subscriber_ends_the_node(home: Home) -> None:
    def broken(image: MetadataImage, delta: MetadataDelta) -> None:
        raise RuntimeError("bug")

    async def work(node: MetadataNode) -> None:
        node.subscribe(broken)
        with pytest.raises(DecisionTimedOut, match="may be carried out or not"):
            await node.submit(a_topic("a", b"a" * 16))
        assert isinstance(node.failure, RuntimeError)

    home.with_node(work)
    assert "a" in home.with_node(no_work).image.topics_by_name


def test_what_does_not_fit_in_a_batch_is_written_as_a_transaction(home: Home) -> None:
    config = MetadataLogConfig(max_batch_bytes=2000)
    names = [f"topic-{n}" for n in range(200)]

    def many(image: MetadataImage) -> ControllerResult[None]:
        records = [
            make("TopicRecord", name=name, topic_id=name.encode().ljust(16)) for name in names
        ]
        return ControllerResult(tuple(records), None)

    async def work(node: MetadataNode) -> None:
        await node.submit(many)
        assert set(node.image.topics_by_name) == set(names)

    home.with_node(work, config)
    assert set(home.with_node(no_work).image.topics_by_name) == set(names)


def test_a_transaction_without_end_leaves_nothing_and_is_aborted(home: Home) -> None:
    home.with_node(no_work)
    log = MetadataLog.open(
        home.metadata,
        config=MetadataLogConfig(),
        disk=Disk(),
        clock=home.ports.clock,
        recovery_point=0,
    )
    half = [make("BeginTransactionRecord", name="x"), make("TopicRecord", name="half")]
    log.append(
        data_batch(half, base_offset=log.end_offset, epoch=1, timestamp_ms=1), timestamp_ms=1
    )
    log.close()

    async def work(node: MetadataNode) -> None:
        assert node.image.topics_by_name == {}
        await node.submit(a_topic("a", b"a" * 16))

    home.with_node(work)
    assert set(home.with_node(no_work).image.topics_by_name) == {"a"}


def test_another_node_id_or_directory_is_refused_with_both_values(home: Home) -> None:
    with pytest.raises(QuorumConfigError, match=r"that of voter 1, .* node.id=2: .* was copied"):
        home.node(node_id=2).open()
    with pytest.raises(QuorumConfigError, match=r"RERERERERERERERERERERA.*RUVFRUVFRUVF"):
        home.node(directory_id=b"E" * 16).open()


def test_without_voters_or_with_others_the_node_does_not_start(tmp_path: Path) -> None:
    home = Home(tmp_path, standalone=False)
    with pytest.raises(QuorumConfigError, match=r"controller\.quorum\.voters"):
        home.node().open()
    with pytest.raises(QuorumConfigError, match=r"2@localhost:9094 does not contain .*node\.id=1"):
        home.node(static_voters=(Node(2, "localhost", 9094),)).open()


def test_an_unformatted_directory_is_refused_before_an_epoch_is_opened(home: Home) -> None:
    (home.path / "bootstrap.checkpoint").unlink()
    with pytest.raises(NotFormattedError):
        home.node().open()
    assert not (home.metadata / "quorum-state").exists()


@pytest.mark.parametrize("is_checked", [False, True])
def test_a_start_knows_the_topics_whose_removal_it_replays(home: Home, *, is_checked: bool) -> None:
    topic_id = b"r" * 16

    async def removed(node: MetadataNode) -> None:
        await node.submit(a_topic("t", topic_id))
        await node.submit(
            lambda _image: ControllerResult((make("RemoveTopicRecord", topic_id=topic_id),), None)
        )

    home.with_node(removed)
    node = home.node()
    node.open((lambda _image: None) if is_checked else None)
    assert node.first_removed == {topic_id}


def test_a_record_of_a_newer_version_is_fatal_and_named(home: Home) -> None:
    from kafka_protocol.records.records import build_batch

    node = home.with_node(no_work)
    batch = build_batch(
        [(1, None, bytes([1, 99, 0, 0]), [])], base_offset=node.log_end_offset, leader_epoch=1
    )
    log = home.metadata / "00000000000000000000.log"
    log.write_bytes(log.read_bytes() + batch)
    with pytest.raises(UnreadableRecordError, match=r"000\.log.*position \d+.*99"):
        home.node().open()


def test_a_torn_tail_is_cut(home: Home) -> None:
    async def create(node: MetadataNode) -> None:
        await node.submit(a_topic("a", b"a" * 16))
        await node.submit(a_topic("b", b"b" * 16))

    home.killed_after(create)
    log = home.metadata / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-1])
    forget_lines(home.metadata)
    assert set(home.with_node(no_work).image.topics_by_name) == {"a"}


def test_a_snapshot_replaces_the_log_before_it(home: Home) -> None:
    async def create(node: MetadataNode) -> None:
        for n in range(50):
            await node.submit(a_topic(f"t{n}", bytes([n + 1]) * 16))
        assert await node.snapshot() == node.latest_snapshot_id

    first = home.with_node(create)
    again = home.with_node(no_work)
    assert again.image.topics_by_name == first.image.topics_by_name
    assert again.latest_snapshot_id == (first.image.provenance.end_offset, 1)


def test_snapshots_come_by_themselves_and_old_ones_and_their_log_go(home: Home) -> None:
    config = MetadataLogConfig(
        segment_bytes=2000, max_record_bytes_between_snapshots=1500, max_retention_bytes=6000
    )

    async def create(node: MetadataNode) -> None:
        for n in range(150):
            topic_id = bytes([n + 1]) * 16
            await node.submit(a_topic(f"t{n}", topic_id))
            await node.submit(
                lambda image, i=topic_id: ControllerResult(
                    (make("RemoveTopicRecord", topic_id=i),), None
                )
            )
        await node.submit(a_topic("last", b"l" * 16))

    node = home.with_node(create, config)
    assert node.log_start_offset > 0
    names = [p.name for p in home.metadata.iterdir()]
    assert 1 <= sum(name.endswith(".checkpoint") for name in names) < 10
    assert "00000000000000000000.log" not in names
    assert not any(name.endswith((".part", ".deleted")) for name in names)
    again = home.with_node(no_work, config)
    assert set(again.image.topics_by_name) == {"last"}


async def test_time_alone_makes_a_snapshot_if_something_changed(home: Home) -> None:
    scheduler = home.ports.scheduler
    config = MetadataLogConfig(max_snapshot_interval_ms=600_000)
    node = home.node(config=config)
    await node.begin()
    scheduler.advance(540_000)
    await asyncio.sleep(0)
    assert node.latest_snapshot_id == (0, 0)
    scheduler.advance(120_000)
    await node.close()
    assert node.latest_snapshot_id == (9, 1)


def test_a_damaged_snapshot_is_put_aside_and_the_log_used(home: Home) -> None:
    async def create(node: MetadataNode) -> None:
        await node.submit(a_topic("a", b"a" * 16))
        await node.snapshot()
        await node.submit(a_topic("b", b"b" * 16))

    node = home.with_node(create)
    assert node.latest_snapshot_id is not None
    path = home.metadata / node.latest_snapshot_id.file_name
    path.write_bytes(path.read_bytes()[:-1])
    again = home.with_node(no_work)
    assert set(again.image.topics_by_name) == {"a", "b"}
    assert path.with_name(path.name + ".corrupt").exists()


def test_records_that_are_nowhere_are_not_made_up(home: Home) -> None:
    config = MetadataLogConfig(segment_bytes=500, max_retention_bytes=1)

    async def create(node: MetadataNode) -> None:
        for n in range(30):
            await node.submit(a_topic(f"t{n}", bytes([n + 1]) * 16))
        await node.snapshot()

    node = home.with_node(create, config)
    assert node.log_start_offset > 0
    for path in home.metadata.glob("*.checkpoint"):
        path.unlink()
    with pytest.raises(MissingMetadataError):
        home.node().open()


def test_a_snapshot_that_cannot_be_written_is_tried_again(home: Home) -> None:
    async def work(node: MetadataNode) -> None:
        home.disk.fail(["open_append"], path_part=".part")
        assert (await node.snapshot(), len(node.snapshot_problems())) == (None, 1)
        home.disk.heal()
        assert (await node.snapshot() is None, node.snapshot_problems()) == (False, ())
        await node.submit(a_topic("a", b"a" * 16))

    home.with_node(work)


async def test_a_closed_node_takes_nothing(home: Home) -> None:
    node = home.node()
    await node.begin()
    await node.close()
    with pytest.raises(MetadataUnavailable):
        await node.submit(a_topic("a", b"a" * 16))


async def test_a_node_that_closes_waits_for_no_change_that_comes_meanwhile(home: Home) -> None:
    """Else the log is left as after a kill, and the lead is not handed over."""
    node = home.node()
    await node.begin()
    first = asyncio.ensure_future(node.submit(a_topic("a", b"a" * 16)))
    await asyncio.sleep(0)
    late: list[asyncio.Future[object]] = []

    def another(_done: object) -> None:
        late.append(asyncio.ensure_future(node.submit(a_topic("b", b"b" * 16))))

    first.add_done_callback(another)
    await node.close()
    await first
    assert (node.failure, home.failures) == (None, [])
    with pytest.raises(MetadataUnavailable):
        await late[0]


def test_a_log_cut_anywhere_starts_with_what_was_before_the_cut(home: Home) -> None:
    async def create(node: MetadataNode) -> None:
        for n in range(3):
            await node.submit(a_topic(f"t{n}", bytes([n + 1]) * 16))

    home.with_node(create)
    log = home.metadata / "00000000000000000000.log"
    data = log.read_bytes()
    seen = set()
    for size in range(0, len(data), 5):
        for path in home.metadata.iterdir():
            if not path.name.endswith(".checkpoint"):
                path.unlink()
        log.write_bytes(data[:size])
        topics = sorted(home.with_node(no_work).image.topics_by_name)
        assert topics == ["t0", "t1", "t2"][: len(topics)]
        seen.add(len(topics))
    assert seen == {0, 1, 2}


async def test_closing_a_node_that_never_started_is_fine(home: Home) -> None:
    await home.node().close()


async def test_a_node_that_was_only_opened_answers_nobody_and_closes(home: Home) -> None:
    """Its listener opens between the two, and may find its port taken."""
    node = home.node()
    node.open()
    other, itself = ReplicaKey(2, b"E" * 16), ReplicaKey(1, DIRECTORY_ID)
    answers: list[Response] = []
    node.receive(VoteRequest(1, other, itself, 0, 0, pre_vote=True), answers.append)
    await node.close()
    assert (answers, home.failures) == ([], [])
    again = home.node()
    await again.begin()
    await again.close()


def test_snapshots_asked_for_at_once_do_not_disturb_each_other(home: Home) -> None:
    async def work(node: MetadataNode) -> None:
        made = await asyncio.gather(node.snapshot(), node.snapshot(), node.snapshot())
        assert set(made) == {node.latest_snapshot_id}

    home.with_node(work)
    assert home.with_node(no_work).image.features == DEFAULT_FEATURES
