"""What the broker answers to its tier, and that it answers no sooner than it may."""

import errno
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.remote.answers import BrokerAnswers, ControllerQuestions
from broker.remote.removed_topics import FILE_NAME, RemovedTopicsFile, parse
from broker.replica.followers import Followers
from broker.replica.validation import Validation
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.files import offset_checkpoint
from kafka_protocol.types import TopicPartition
from local_log.config import LONG_MAX
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import EMPTY_IMAGE
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import make
from metadata_topic.image.replay import replay_all
from rlm.link.endpoint import Received
from rlm.link.messages import (
    Ack,
    AnyMessage,
    CopiedThrough,
    DescribeLog,
    Failure,
    Health,
    Image,
    ImageAtLeast,
    LogDescription,
    Loss,
    LossFound,
    OpenSegment,
    RaiseLeaderEpoch,
    RaiseLogStart,
    TopicsEmptied,
    ValidationWithdrawn,
)
from runtime.disk import Disk
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.power_cut_disk import PowerCutDisk
from tests.support.sim.rng import SeededRng
from tests.support.worlds.data_plane import NODE, World
from tests.support.worlds.leading import broker
from tests.support.worlds.pools import HeldPool, turns

LEADER_EPOCH = 3
ORDERS = TopicPartition("orders", 0)


async def _nobody(_timeout_ms: int) -> None:
    """No leader answers DescribeQuorum."""


class NoFacts:
    def on_health(self, health: Health) -> None:
        pass


class Tier:
    """A world with a topic of ten records, its metadata, and its tier, which asks."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.pool = HeldPool(is_holding=False)
        self.world = World(directory, disk=disk or Disk(), pool=self.pool)
        self.topic_id = self.world.add_topic("orders", leader_epoch=LEADER_EPOCH)
        for number in range(10):
            self.world.append("orders", b"%d" % number)
        self.log = self.world.log("orders")
        self.directory = directory
        self.answers: list[AnyMessage] = []
        self.kept_at_answer: list[int | None] = []
        self.at_answer: Callable[[], None] = lambda: None
        self.cluster_id, self.image, self.high_watermark = "cluster", EMPTY_IMAGE, 0
        self.is_alone = True
        self.raised: list[tuple[ReplicaId, int, int]] = []
        self.in_vain = ""
        self.emptied: list[bytes] = []
        self.removed_topics = RemovedTopicsFile(
            directory, self.cluster_id, disk or Disk(), self.pool
        )

    def kept_log_start(self) -> int | None:
        """The log start that a new process would find."""
        path = self.directory / offset_checkpoint.LOG_STARTS
        return offset_checkpoint.parse(path.read_bytes()).get(ORDERS) if path.exists() else None

    async def update_removed_topics(self, emptied: Collection[bytes]) -> None:
        self.emptied += emptied

    def raise_epoch(self, replica: ReplicaId, *, leader_epoch: int, used: int) -> str:
        self.raised.append((replica, leader_epoch, used))
        return self.in_vain

    def ask(self, question: AnyMessage) -> None:
        """Send a question; its answer comes into `answers`."""
        broker = BrokerAnswers(
            self.world.replicas,
            self,
            ControllerQuestions(self.raise_epoch, self.update_removed_topics, _nobody),
            self.removed_topics,
            ports=self.world.ports,
            facts=NoFacts(),
        )

        def reply(answer: AnyMessage, files: Sequence[Any] = ()) -> None:
            self.at_answer()
            self.kept_at_answer.append(self.kept_log_start())
            self.answers.append(answer)

        broker(Received(question), reply)

    def raise_log_start(self, offset: int, leader_epoch: int = LEADER_EPOCH) -> None:
        self.ask(RaiseLogStart(self.topic_id, 0, leader_epoch, offset=offset, reason="time"))


async def test_a_raised_log_start_is_answered_when_its_checkpoint_is_on_disk(
    tmp_path: Path,
) -> None:
    tier = Tier(tmp_path)
    tier.pool.is_holding = True
    tier.raise_log_start(7)
    await tier.pool.until_held()
    await turns()
    assert tier.answers == []
    tier.pool.release()
    await turns()
    assert tier.answers == [Ack()]
    assert tier.kept_at_answer == [7]


@pytest.mark.parametrize("operation", ["fsync", "write_at", "rename"])
async def test_a_log_start_that_cannot_be_kept_is_a_failure(tmp_path: Path, operation: str) -> None:
    disk = FaultyDisk()
    tier = Tier(tmp_path, disk)
    disk.fail([operation], path_part=offset_checkpoint.LOG_STARTS)
    tier.raise_log_start(7)
    await turns()
    (answer,) = tier.answers
    assert isinstance(answer, Failure), answer
    assert answer.code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("seed", range(10))
async def test_an_acknowledged_log_start_survives_a_power_cut(tmp_path: Path, seed: int) -> None:
    disk = PowerCutDisk(tmp_path, SeededRng(seed))
    tier = Tier(tmp_path, disk)
    tier.at_answer = disk.cut
    tier.raise_log_start(7)
    await turns()
    assert tier.answers == [Ack()]
    assert tier.kept_at_answer == [7]


async def test_a_log_start_above_the_high_watermark_is_not_taken(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    tier.raise_log_start(11)
    await turns()
    (answer,) = tier.answers
    assert isinstance(answer, Ack)
    assert not answer.taken
    assert tier.log.log_start_offset == 0


async def test_questions_of_an_older_leader_epoch_are_refused_and_change_nothing(
    tmp_path: Path,
) -> None:
    tier = Tier(tmp_path)
    tier.ask(DescribeLog(tier.topic_id, 0, LEADER_EPOCH))
    assert isinstance(tier.answers.pop(), LogDescription)
    older = (tier.topic_id, 0, LEADER_EPOCH - 1)
    tier.ask(DescribeLog(*older))
    tier.ask(OpenSegment(*older, base_offset=0))
    tier.ask(
        CopiedThrough(*older, last_offset=5, last_offset_epoch=3, remote_start=0, remote_bytes=1)
    )
    tier.raise_log_start(7, leader_epoch=LEADER_EPOCH - 1)
    await turns()
    codes = [answer.code for answer in tier.answers if isinstance(answer, Failure)]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 4
    assert tier.log.log_start_offset == 0
    assert tier.log.copied_through == -1
    assert tier.kept_log_start() is None


async def test_a_report_is_a_validation_only_where_it_is_taken(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    partition = tier.world.replicas.require("orders", 0)
    names = (tier.topic_id, 0, LEADER_EPOCH)
    of_another_chain = CopiedThrough(
        *names, last_offset=5, last_offset_epoch=2, remote_start=0, remote_bytes=1
    )
    tier.ask(of_another_chain)
    assert [answer.taken for answer in tier.answers if isinstance(answer, Ack)] == [False]
    assert (partition.verdict, tier.log.copied_through) == (Validation.OPEN, -1)
    tier.ask(msgspec.structs.replace(of_another_chain, last_offset_epoch=LEADER_EPOCH))
    assert (partition.verdict, tier.log.copied_through) == (Validation.SOUND, 5)
    tier.ask(ValidationWithdrawn(*names))
    assert (partition.verdict, tier.log.copied_through) == (Validation.OPEN, -1)
    tier.ask(LossFound(*names, Loss.LOG_END))
    tier.ask(ValidationWithdrawn(*names))
    assert (partition.verdict, tier.log.copied_through) == (Loss.LOG_END, -1)


async def test_a_report_waits_for_a_log_that_is_lent(tmp_path: Path) -> None:
    """The tier says it once: a leader that is paused for a swap would not take it."""
    tier = Tier(tmp_path)
    partition = tier.world.replicas.require("orders", 0)
    partition.pause()
    tier.log.lease.grant(truncates=True)
    tier.ask(LossFound(tier.topic_id, 0, LEADER_EPOCH, Loss.LOG_END))
    assert tier.answers == []
    partition.lead_on()
    tier.log.lease.take_back()
    assert partition.verdict is Loss.LOG_END
    assert tier.answers == [Ack()]


async def test_the_tier_hears_of_no_log_start_that_may_fall_back(tmp_path: Path) -> None:
    """It was raised in memory, by DeleteRecords or retention, and its checkpoint failed."""

    disk = FaultyDisk()
    tier = Tier(tmp_path, disk)
    tier.log.raise_log_start(7)
    disk.fail(["rename"], path_part="log-start", error=errno.EMFILE)
    tier.ask(DescribeLog(tier.topic_id, 0, LEADER_EPOCH))
    await turns()
    assert [type(answer) for answer in tier.answers] == [Failure]
    disk.heal()
    tier.ask(DescribeLog(tier.topic_id, 0, LEADER_EPOCH))
    await turns()
    answer = tier.answers[-1]
    assert isinstance(answer, LogDescription)
    assert answer.log_start_offset == tier.kept_log_start() == 7


async def test_the_image_says_what_exists_and_what_was_removed(
    tmp_path: Path,
) -> None:
    tier = Tier(tmp_path)
    living, removed = b"l" * 16, b"r" * 16
    records = [
        make("TopicRecord", name="living", topic_id=living),
        make("TopicRecord", name="removed", topic_id=removed, was_tiered=True),
        make("RemoveTopicRecord", topic_id=removed),
    ]
    tier.image, delta = replay_all(EMPTY_IMAGE, records, Provenance(9, 1, 1))
    tier.removed_topics.follow(tier.image, delta)
    tier.ask(ImageAtLeast())
    await turns()
    assert tier.answers == [Image([living], 9, "cluster", [removed])]
    tier.ask(TopicsEmptied([living, removed]))
    await turns()
    assert tier.answers[-1] == Ack()
    assert tier.emptied == [removed], "what the controllers keep no list of is not told to them"
    tier.ask(ImageAtLeast())
    await turns()
    assert tier.answers[-1] == Image([living], 9, "cluster")


async def test_a_removal_is_on_the_disk_before_the_tier_hears_of_it(tmp_path: Path) -> None:
    disk = FaultyDisk()
    tier = Tier(tmp_path, disk)
    removed = b"r" * 16
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.tiered_removals[removed] = True
    disk.fail(["rename"], path_part=FILE_NAME)
    tier.removed_topics.follow(tier.image, delta)
    tier.ask(ImageAtLeast())
    await turns()
    (answer,) = tier.answers
    assert isinstance(answer, Failure)
    disk.heal()
    tier.removed_topics.are_listed = lambda: False
    on_disk: list[list[bytes]] = []
    tier.at_answer = lambda: on_disk.append(parse((tmp_path / FILE_NAME).read_bytes())[1])
    tier.ask(ImageAtLeast())
    await turns()
    assert tier.answers[-1] == Image([], -1, "cluster", [removed], removals_are_listed=False)
    assert on_disk == [[removed]]


async def test_where_the_metadata_log_takes_no_records_the_tier_hears_it(tmp_path: Path) -> None:
    tier = Tier(tmp_path)

    async def refuse(*_: object) -> None:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "no quorum")

    tier.update_removed_topics = refuse  # type: ignore[method-assign,assignment]
    tier.image, _ = replay_all(
        EMPTY_IMAGE,
        [make("NoOpRecord", removed_tiered_topics=[b"r" * 16])],
        Provenance(0, 1, 1),
    )
    tier.removed_topics.begin(tier.image)
    tier.ask(TopicsEmptied([b"r" * 16]))
    await turns()
    (answer,) = tier.answers
    assert isinstance(answer, Failure)
    assert tier.removed_topics.keep() == [b"r" * 16], "it is not known to be off the list"


async def test_emptied_topics_are_off_the_disk_when_the_tier_hears_of_it(tmp_path: Path) -> None:
    """After a crash the next life would look for them in the store again."""
    disk = FaultyDisk()
    tier = Tier(tmp_path, disk)
    tier.removed_topics.forget(b"r" * 16)
    assert tier.removed_topics.keep() == [b"r" * 16]
    disk.fail(["rename"], path_part=FILE_NAME)
    tier.ask(TopicsEmptied([b"r" * 16]))
    await turns()
    assert isinstance(tier.answers[-1], Failure)
    disk.heal()
    tier.ask(TopicsEmptied([b"r" * 16]))
    await turns()
    assert tier.answers[-1] == Ack()
    assert parse((tmp_path / FILE_NAME).read_bytes())[1] == []


async def test_a_needed_leader_epoch_is_asked_for_and_answered_at_once(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    replica = ReplicaId(tier.topic_id, 0)
    tier.ask(RaiseLeaderEpoch(tier.topic_id, 0, LEADER_EPOCH, used=9))
    assert tier.raised == [(replica, LEADER_EPOCH, 9)]
    tier.in_vain = "the controller refuses a higher one"
    tier.ask(RaiseLeaderEpoch(tier.topic_id, 0, LEADER_EPOCH, used=9))
    tier.ask(RaiseLeaderEpoch(tier.topic_id, 0, LEADER_EPOCH - 1, used=9))
    *answers, stale = tier.answers
    assert answers == [Ack(), Ack(taken=False, reason=tier.in_vain)]
    assert isinstance(stale, Failure)
    assert len(tier.raised) == 2, "nobody asks under a leader epoch that is over"


# -- with replicas


def with_followers(tier: Tier) -> Followers:
    """Brokers 2 and 3 follow it, and have all."""
    tier.world.brokers = {one: broker(one) for one in (NODE, 2, 3)}
    tier.world.change("orders", replicas=(NODE, 2, 3), isr=(NODE, 2, 3), leader_epoch=LEADER_EPOCH)
    followers = tier.world.replicas.require("orders", 0).followers
    assert followers is not None
    for one in (2, 3):
        fetched(followers, one, log_start=0)
    return followers


def fetched(followers: Followers, replica: int, *, log_start: int) -> None:
    followers.fetched(replica, broker_epoch=10, offset=10, log_start_offset=log_start)


async def test_a_raised_log_start_is_answered_before_followers_checkpoint_it(
    tmp_path: Path,
) -> None:
    """A thread of the tier waits for the answer; the next description says what followers have."""
    tier = Tier(tmp_path)
    followers = with_followers(tier)
    tier.raise_log_start(7)
    await turns()
    assert tier.answers == [Ack()]
    assert tier.kept_log_start() == 7
    fetched(followers, 2, log_start=7)
    tier.ask(DescribeLog(tier.topic_id, 0, LEADER_EPOCH))
    fetched(followers, 3, log_start=7)
    tier.ask(DescribeLog(tier.topic_id, 0, LEADER_EPOCH))
    found = [one.members_log_start for one in tier.answers if isinstance(one, LogDescription)]
    assert found == [0, 7]


async def test_a_description_says_which_log_start_followers_have(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    tier.ask(DescribeLog(tier.topic_id, 0, LEADER_EPOCH))
    followers = with_followers(tier)
    tier.ask(DescribeLog(tier.topic_id, 0, LEADER_EPOCH))
    fetched(followers, 2, log_start=7)
    fetched(followers, 3, log_start=5)
    tier.ask(DescribeLog(tier.topic_id, 0, LEADER_EPOCH))
    tier.world.change("orders", isr=(NODE,))
    tier.ask(DescribeLog(tier.topic_id, 0, LEADER_EPOCH))
    found = [
        (one.members_log_start, one.members_highest_log_start)
        for one in tier.answers
        if isinstance(one, LogDescription)
    ]
    assert found == [(LONG_MAX, -1), (0, 0), (5, 7), (LONG_MAX, -1)]


async def test_a_followed_partition_answers_descriptions_and_refuses_changes(
    tmp_path: Path,
) -> None:
    tier = Tier(tmp_path)
    tier.world.brokers = {one: broker(one) for one in (NODE, 2)}
    epoch = LEADER_EPOCH + 1
    tier.world.change("orders", replicas=(2, NODE), isr=(2, NODE), leader=2, leader_epoch=epoch)
    names = (tier.topic_id, 0, epoch)
    tier.ask(DescribeLog(*names))
    report = CopiedThrough(
        *names, last_offset=5, last_offset_epoch=LEADER_EPOCH, remote_start=0, remote_bytes=1
    )
    tier.ask(report)
    description, taken = tier.answers
    assert isinstance(description, LogDescription)
    assert (description.high_watermark, taken) == (10, Ack())
    partition = tier.world.replicas.require("orders", 0)
    assert (tier.log.copied_through, partition.verdict) == (5, Validation.OPEN)
    tier.answers.clear()
    tier.ask(OpenSegment(*names, base_offset=0))
    tier.ask(RaiseLogStart(*names, offset=5, reason="time"))
    await turns()
    codes = [one.code for one in tier.answers if isinstance(one, Failure)]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert tier.log.log_start_offset == 0


@pytest.mark.parametrize("leader", [NODE, 2])
async def test_what_was_told_under_an_earlier_leader_epoch_does_not_count(
    tmp_path: Path, leader: int
) -> None:
    tier = Tier(tmp_path)
    tier.world.brokers = {one: broker(one) for one in (NODE, 2)}
    tier.world.change("orders", replicas=(NODE, 2), isr=(NODE, 2))
    tier.log.set_copied_through(5, LEADER_EPOCH)
    tier.world.change("orders", isr=(NODE,))
    assert tier.log.copied_through == 5
    tier.world.change("orders", leader=leader, leader_epoch=LEADER_EPOCH + 1)
    assert tier.log.copied_through == -1
