"""A follower against the real handlers of its leader."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.replica.hosting import ReplicaEvents
from broker.replica.partition import Partition
from broker.replication import fetcher
from broker.replication.fetcher import ReplicaFetcher
from broker.replication.following import FIRST_WAIT_MS
from kafka_protocol.types import EpochEntry, TopicPartition
from local_log.log.truncation import truncate_fully_and_start_at
from metadata_topic.image.delta import MetadataDelta
from runtime.work import STEP_WORK, Work
from tests.support.worlds.data_plane import NODE
from tests.support.worlds.followers import FOLLOWER, Pair, bytes_of, following
from tests.support.worlds.pools import HeldPool, turns

OTHER = 3
LEADER = ("leader", 9000 + NODE)


def asked_of(pair: Pair, index: int = 0, *, leader: int = NODE) -> list[Any]:
    """What was asked of a partition, in the questions that name it."""
    return [
        one
        for fetch in pair.sides[leader].fetches
        for topic in fetch.topics
        for one in topic.partitions
        if one.partition == index
    ]


def partition(pair: Pair, name: str = "t", index: int = 0) -> Partition:
    return pair.follower.replicas.partitions[TopicPartition(name, index)]


def raise_log_start(pair: Pair) -> None:
    """The leader's log begins behind its first record."""
    led = pair.leader.replicas.partitions[TopicPartition("t", 0)]
    led.log.raise_log_start(1)
    led.log_start_raised()


# -- records, marks, and what is asked


async def test_records_high_watermark_and_bytes_are_the_leaders(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        pair.add_topic("t", 2)
        pair.leader.append("t", b"a", b"b")
        pair.leader.append("t", b"c", index=1)
        await pair.run(200)
        assert pair.logs_are_equal("t")
        assert pair.logs_are_equal("t", 1)
        assert pair.follower.log("t").high_watermark == 2
        copied = pair.follower.replicas.hosting.metrics.of("t").replication_bytes_in.value
        assert copied == sum(len(bytes_of(pair.leader.log("t", index))) for index in (0, 1))
        pair.leader.append("t", b"d")
        await pair.run(200)
        assert pair.logs_are_equal("t")
        assert pair.follower.log("t").log_end_offset == 3
        assert pair.follower.log("t").high_watermark == 3
        assert pair.network.connections == 1


async def test_a_question_says_who_asks_and_what_is_here(tmp_path: Path) -> None:
    async with following(tmp_path, broker_epoch=77) as pair:
        pair.add_topic("t")
        pair.leader.append("t", b"a", b"b")
        await pair.run(200)
        newest = asked_of(pair)[-1]
        assert (newest.fetch_offset, newest.last_fetched_epoch) == (2, 3)
        assert (newest.current_leader_epoch, newest.high_watermark) == (3, 2)
        state = pair.side.fetches[-1].replica_state
        assert (state.replica_id, state.replica_epoch) == (FOLLOWER, 77)


@pytest.mark.parametrize("newest", [13, 14, 15, 16, 17])
async def test_leaders_of_older_versions_are_followed(tmp_path: Path, newest: int) -> None:
    async with following(tmp_path) as pair:
        pair.side.versions = (4, newest)
        await pair.add_followed("t", b"a")
        assert pair.logs_are_equal("t")
        assert pair.side.version == newest


async def test_one_session_serves_and_quiet_partitions_are_not_named_again(
    tmp_path: Path,
) -> None:
    async with following(tmp_path) as pair:
        await pair.add_followed("t", partitions=40)
        pair.leader.append("t", b"a", index=7)
        await pair.run(2_000)
        assert pair.logs_are_equal("t", 7)
        named = [sum(len(t.partitions) for t in f.topics) for f in pair.side.fetches]
        assert sum(one > 1 for one in named) <= 2
        assert len(pair.side.fetch.sessions) == 1


async def test_a_fetch_waits_for_records_as_the_settings_say(tmp_path: Path) -> None:
    settings = {
        "replica.fetch.wait.max.ms": "400",
        "replica.fetch.min.bytes": "3",
        "replica.fetch.max.bytes": "1000",
        "replica.fetch.response.max.bytes": "5000",
    }
    async with following(tmp_path, settings=settings) as pair:
        pair.add_topic("t")
        await pair.run(3_000)
        fetch = pair.side.fetches[-1]
        assert (fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes) == (400, 3, 5000)
        assert asked_of(pair)[-1].partition_max_bytes == 1000
        assert 6 <= len(pair.side.fetches) <= 10, "it asks all the time, or too rarely"


async def test_the_log_start_follows_and_is_told_once_it_is_durable(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await pair.add_followed("t", b"a", b"b")
        raise_log_start(pair)
        await pair.run(1_000)
        assert pair.follower.log("t").log_start_offset == 1
        assert asked_of(pair)[-1].log_start_offset == 1
        directory = pair.follower.logs.directory_of(TopicPartition("t", 0))
        assert directory is not None
        assert directory.entry("log-start-offset-checkpoint", TopicPartition("t", 0)) == 1
        assert pair.follower.log("t").epochs.entries() == [EpochEntry(3, 1)]


async def test_a_log_start_of_the_followers_own_is_told_once_it_is_durable(
    tmp_path: Path,
) -> None:
    """Its retention moves it in memory first."""
    async with following(tmp_path) as pair:
        await pair.add_followed("t", b"a")
        pair.follower.log("t").raise_log_start(1)
        pair.leader.append("t", b"b")
        await pair.run(700)
        assert (asked_of(pair)[-1].fetch_offset, asked_of(pair)[-1].log_start_offset) == (2, 0)
        pair.change("t", leader_epoch=4, partition_epoch=1)  # followed again: it is kept first
        await pair.run(200)
        assert asked_of(pair)[-1].log_start_offset == 1


async def test_a_log_start_that_is_not_kept_is_not_told(tmp_path: Path) -> None:
    pool = HeldPool(is_holding=False)
    async with following(tmp_path, pool=pool) as pair:
        await pair.add_followed("t", b"a")
        pool.is_holding = True
        raise_log_start(pair)
        await pair.run(2_000)
        assert pair.follower.log("t").log_start_offset == 1
        assert asked_of(pair)[-1].log_start_offset == 0
        pool.stop_holding()
        await pair.run(1_000)
        assert asked_of(pair)[-1].log_start_offset == 1


# -- logs that differ


async def test_a_log_that_diverged_is_cut_and_becomes_the_leaders(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await pair.add_followed("t", b"a")
        pair.follower.change("t", leader=FOLLOWER, leader_epoch=4, partition_epoch=1)
        pair.follower.append("t", b"x", b"y", b"z")
        pair.change("t", leader_epoch=5, partition_epoch=2)
        pair.leader.append("t", b"b")
        pair.leader.append("t", b"c")
        await pair.run(500)
        assert pair.logs_are_equal("t")
        assert pair.follower.log("t").epochs.entries() == [EpochEntry(3, 0), EpochEntry(5, 1)]
        assert pair.follower.log("t").high_watermark == 3


async def test_marks_are_told_again_after_a_divergence(tmp_path: Path) -> None:
    """The leader told them with the divergence, when the follower could not take them."""
    async with following(tmp_path) as pair:
        await pair.add_followed("t", b"a", b"b")
        pair.follower.change("t", leader=FOLLOWER, leader_epoch=4, partition_epoch=1)
        await pair.run(100)
        pair.follower.append("t", b"x")
        pair.leader.log("t").raise_log_start(1)
        pair.change("t", leader_epoch=5, partition_epoch=2)
        await pair.run(1_000)
        assert pair.follower.log("t").log_end_offset == 2
        assert pair.follower.log("t").log_start_offset == 1


async def test_a_leadership_without_a_record_leaves_no_epoch(tmp_path: Path) -> None:
    """Its start would give way to earlier epochs later, and theirs with it."""
    async with following(tmp_path) as pair:
        pair.add_topic("t", leader_epoch=3)
        pair.leader.append("t", b"a")
        await pair.run(200)
        pair.follower.change("t", leader=FOLLOWER, leader_epoch=5, partition_epoch=1)
        assert pair.follower.log("t").epochs.latest_epoch == 5
        pair.change("t", leader=NODE, leader_epoch=6, partition_epoch=2)
        await pair.run(200)
        assert asked_of(pair)[-1].last_fetched_epoch == 3
        pair.leader.append("t", b"b")
        await pair.run(200)
        assert pair.follower.log("t").epochs.entries() == [EpochEntry(3, 0), EpochEntry(6, 1)]


async def test_a_follower_below_the_leaders_log_start_begins_there(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        pair.leader.add_topic("t")
        for value in (b"a", b"b", b"c", b"d"):
            pair.leader.append("t", value)
        pair.leader.log("t").raise_log_start(2)
        pair.leader.change("t", replicas=(NODE, FOLLOWER))
        pair.share("t")
        await pair.run(500)
        log = pair.follower.log("t")
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (2, 4, 4)
        assert asked_of(pair)[-1].log_start_offset == 2


async def test_a_log_start_within_a_batch_is_followed(tmp_path: Path) -> None:
    """The leader sends the batch whole; refused, the follower would never be in sync."""
    async with following(tmp_path) as pair:
        pair.leader.add_topic("t")
        pair.leader.append("t", b"a", b"b", b"c")
        pair.leader.append("t", b"d")
        pair.leader.log("t").raise_log_start(2)
        pair.leader.change("t", replicas=(NODE, FOLLOWER))
        pair.share("t")
        await pair.run(500)
        log = pair.follower.log("t")
        assert pair.logs_are_equal("t")
        assert (log.log_start_offset, log.high_watermark) == (2, 4)
        assert asked_of(pair)[-1].log_start_offset == 2
        assert pair.fetchers.problems() == []


async def test_an_empty_log_above_the_leaders_end_begins_as_the_leaders(tmp_path: Path) -> None:
    """Begun at the leader's end it would be in sync, and lead next without all that lies below."""
    async with following(tmp_path) as pair:
        pair.add_topic("t")
        truncate_fully_and_start_at(pair.follower.log("t"), 50)
        assert not pair.follower.logs.keep_log_starts([TopicPartition("t", 0)])
        pair.leader.append("t", b"a")
        pair.change("t", leader_epoch=4, partition_epoch=1)
        await pair.run(500)
        pair.leader.append("t", b"b")
        await pair.run(500)
        assert pair.logs_are_equal("t")
        assert pair.follower.log("t").log_start_offset == 0
        last_sent = {one.log_start_offset for one in asked_of(pair) if one.fetch_offset < 50}
        assert last_sent == {0}, "what is noted on disk is of the log before"


async def test_a_log_of_which_nothing_is_left_begins_as_the_leaders(tmp_path: Path) -> None:
    """After an unclean election: what it has deleted was of another lineage than the leader."""
    async with following(tmp_path) as pair:
        await pair.add_followed("t", b"a")
        pair.follower.change("t", leader=FOLLOWER, leader_epoch=4, partition_epoch=1)
        truncate_fully_and_start_at(pair.follower.log("t"), 3)
        pair.follower.append("t", b"z")
        pair.change("t", leader_epoch=5, partition_epoch=2)
        for value in (b"b", b"c", b"d", b"e"):
            pair.leader.append("t", value)
        await pair.run(500)
        assert pair.logs_are_equal("t")
        assert pair.follower.log("t").log_start_offset == 0


async def deleted_up_to(pair: Pair, offset: int, **role: Any) -> None:
    """The follower leads, alone, takes a second record, and has its log begin at `offset`."""
    await pair.add_followed("t", b"a")
    pair.network.cut.add(LEADER)
    pair.follower.change("t", leader=FOLLOWER, leader_epoch=4, partition_epoch=1, **role)
    pair.follower.append("t", b"b")
    log = pair.follower.log("t")
    log.raise_log_start(offset)
    assert not pair.follower.logs.keep_log_starts([TopicPartition("t", 0)])
    log.clip_chain(offset)
    pair.change("t", leader_epoch=5, partition_epoch=2)


async def test_a_log_whose_records_were_all_deleted_finds_another_lineage(tmp_path: Path) -> None:
    """Gone on with, its log start would be that of a lineage that was given up."""
    async with following(tmp_path) as pair:
        await deleted_up_to(pair, 2, isr=(FOLLOWER,))
        for value in (b"c", b"d"):
            pair.leader.append("t", value)
        pair.network.cut.clear()
        await pair.run(2_000)
        assert pair.logs_are_equal("t")
        assert pair.follower.log("t").log_start_offset == 0
        assert pair.follower.log("t").epochs.entries() == [EpochEntry(3, 0), EpochEntry(5, 1)]


async def test_a_member_that_deleted_all_that_is_committed_keeps_its_end(tmp_path: Path) -> None:
    """Begun at the leader's log start it would be in the ISR with less than is committed."""
    async with following(tmp_path) as pair:
        await deleted_up_to(pair, 1)
        pair.network.cut.clear()
        await pair.run(2_000)
        log = pair.follower.log("t")
        assert (log.log_start_offset, log.log_end_offset) == (1, 1)
        asked = asked_of(pair)
        assert {one.fetch_offset for one in asked if one.current_leader_epoch == 5} == {1, 2}
        assert log.epochs.entries() == [EpochEntry(3, 0)]
        pair.leader.append("t", b"c")
        await pair.run(500)
        assert (log.log_end_offset, log.epochs.entries()[1]) == (2, EpochEntry(5, 1))


async def test_a_divergence_with_nothing_to_cut_is_asked_about_rarely(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await pair.add_followed("t", b"a")

        def diverging(body: Any) -> Any:
            for topic in body.responses:
                for one in topic.partitions:
                    one.diverging_epoch = type(one).DivergingEpoch(epoch=3, end_offset=9)
            return body

        pair.side.tamper = diverging
        pair.leader.append("t", b"b")
        await pair.run(1_000)
        before = len(pair.side.fetches)
        await pair.run(20_000, step_ms=50)
        assert len(pair.side.fetches) - before < 100
        assert pair.fetchers.failed_count == 1
        assert pair.follower.log("t").log_end_offset == 1


# -- leaderships


async def test_a_leader_that_knows_of_its_role_later_is_asked_again_soon(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        pair.add_topic("t")
        pair.follower.change("t", leader_epoch=4, partition_epoch=1)
        await pair.run(300)
        assert pair.follower.log("t").log_end_offset == 0
        pair.leader.change("t", leader_epoch=4, partition_epoch=1)
        pair.leader.append("t", b"a")
        await pair.run(16 * FIRST_WAIT_MS + 200)
        assert pair.logs_are_equal("t")
        assert pair.fetchers.failed_count == 0


async def test_an_older_leadership_is_not_asked_for_until_the_metadata_say_more(
    tmp_path: Path,
) -> None:
    async with following(tmp_path) as pair:
        await pair.add_followed("t")
        pair.leader.change("t", leader_epoch=4, partition_epoch=1)
        await pair.run(5_000)
        fetches = len(pair.side.fetches)
        await pair.run(20_000)
        assert len(pair.side.fetches) == fetches
        pair.leader.append("t", b"a")
        pair.share("t")
        await pair.run(300)
        assert pair.logs_are_equal("t")


async def test_an_answer_for_an_older_leadership_is_dropped(tmp_path: Path) -> None:
    """It is on its way while the metadata name the next leader, which has other records."""
    async with following(tmp_path) as pair:
        other = pair.add_leader(OTHER)
        await pair.add_followed("t", ms=600)
        pair.leader.append("t", b"a", b"b")  # the parked fetch is answered now
        pair.change("t", leader=OTHER, leader_epoch=4, partition_epoch=1)
        await pair.run(10)
        assert pair.follower.log("t").log_end_offset == 0
        other.append("t", b"x")
        await pair.run(500)
        assert pair.logs_are_equal("t", leader=OTHER)
        assert pair.follower.log("t").epochs.entries() == [EpochEntry(4, 0)]


async def test_the_session_is_told_all_again_after_a_dropped_answer(tmp_path: Path) -> None:
    """The leader has told its log start once, in an answer that came too late."""
    async with following(tmp_path) as pair:
        await pair.add_followed("t", b"a", partitions=2, ms=600)
        raise_log_start(pair)
        pair.change("t", leader_epoch=4, partition_epoch=1)
        await pair.run(3_000)
        assert pair.follower.log("t").log_start_offset == 1


async def test_a_partition_that_waits_is_asked_for_while_the_others_are_quiet(
    tmp_path: Path,
) -> None:
    async with following(tmp_path) as pair:
        await pair.add_followed("t", partitions=2)
        pair.follower.change("t", leader_epoch=4, partition_epoch=1)
        before = len(asked_of(pair))
        await pair.run(1_200)
        assert len(asked_of(pair)) - before >= 5


async def test_what_is_led_here_or_gone_is_asked_for_no_more(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        pair.add_topic("t")
        pair.add_topic("u")
        await pair.run(600)
        pair.change("t", leader=FOLLOWER, leader_epoch=4, partition_epoch=1)
        pair.delete("u")
        await pair.run(1_500)
        assert len(pair.side.fetch.sessions) == 0
        fetches = len(pair.side.fetches)
        await pair.run(2_000)
        assert len(pair.side.fetches) == fetches


async def test_answers_leave_no_memory_behind(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        pair.add_topic("t")
        for _ in range(5):
            pair.leader.append("t", b"a" * 100)
            await pair.run(100)
        [fetcher] = pair.fetchers._fetchers.values()
        assert fetcher._connection is not None
        assert fetcher._connection.held_bytes == 0


async def test_two_leaders_are_followed_side_by_side(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        other = pair.add_leader(OTHER)
        pair.add_topic("t", 2)
        pair.change("t", 1, leader=OTHER, leader_epoch=4, partition_epoch=1)
        pair.leader.append("t", b"a")
        other.append("t", b"b", index=1)
        await pair.run(300)
        assert pair.logs_are_equal("t")
        assert pair.logs_are_equal("t", 1, leader=OTHER)
        assert not asked_of(pair, 1)[1:]


async def test_without_a_leader_nothing_is_asked(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await pair.add_followed("t")
        pair.change("t", leader=-1, leader_epoch=4, partition_epoch=1)
        await pair.run(1_000)
        fetches = len(pair.side.fetches)
        await pair.run(5_000)
        assert len(pair.side.fetches) == fetches
        assert len(pair.side.fetch.sessions) == 0


async def test_a_leader_that_listens_elsewhere_is_asked_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(tmp_path) as pair:
        await pair.add_followed("t")
        [fetcher] = pair.fetchers._fetchers.values()
        before = fetcher._connection
        del pair.network.nodes["leader", 9000 + NODE]
        pair.listen(NODE, ("elsewhere", 1))
        delta = MetadataDelta(pair.image)
        delta.changed_brokers.add(NODE)
        pair.fetchers.on_image(pair.image, delta)
        pair.leader.append("t", b"a")
        await pair.run(300)
        assert pair.logs_are_equal("t")
        assert before is not None
        assert not before.is_in_use
        assert not [one for one in caplog.records if one.levelname == "WARNING"]


async def test_a_leader_without_an_address_is_named(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        del pair.image.brokers[NODE]
        await pair.add_followed("t")
        assert "where it listens" in pair.fetchers.problems()[0]


async def test_the_fetcher_of_a_leader_that_left_is_forgotten(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await pair.add_followed("t")
        (known,) = pair.fetchers._fetchers.values()
        connection = known._connection
        delta = MetadataDelta(pair.image)
        delta.changed_brokers.add(NODE)
        pair.fetchers.on_image(pair.image, delta)
        assert pair.fetchers._fetchers, "it follows something"
        pair.delete("t")
        await pair.run(1_000)
        pair.fetchers.on_image(pair.image, delta)
        assert pair.fetchers._fetchers, "its broker is registered"
        del pair.image.brokers[NODE]
        pair.fetchers.on_image(pair.image, delta)
        assert not pair.fetchers._fetchers
        assert connection is not None
        assert not connection.is_in_use


async def test_logs_are_lent_and_published_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[object]] = []
    change = ReplicaFetcher._change

    def noted(self: ReplicaFetcher, changes: Any) -> Work[None]:
        work, result, steps = change(self, changes), None, list[object]()
        seen.append(steps)
        while True:
            try:
                wanted = work.send(result)
            except StopIteration:
                return
            steps.append(wanted)
            result = yield wanted

    monkeypatch.setattr(ReplicaFetcher, "_change", noted)
    monkeypatch.setattr(fetcher, "_UNITS", STEP_WORK // 2)
    async with following(tmp_path) as pair:
        pair.add_topic("t", 8)
        for index in range(8):
            pair.leader.append("t", b"a", index=index)
        await pair.run(500)
        assert all(pair.logs_are_equal("t", index) for index in range(8))
    steps = max(seen, key=len)
    (on_pool,) = (number for number, one in enumerate(steps) if one is not None)
    assert on_pool >= 3
    assert len(steps) - on_pool - 1 >= 3


# -- changes while a pool thread has the log


async def test_a_long_answer_alone_is_appended_on_the_pool(tmp_path: Path) -> None:
    pool = HeldPool(is_holding=False)
    async with following(tmp_path, pool=pool) as pair:
        await pair.add_followed("t", b"-")
        pool.is_holding = True
        pair.leader.append("t", b"a")
        await pair.run(200)
        assert pair.follower.log("t").log_end_offset == 2
        assert not pool.held
        pair.leader.append("t", bytes(fetcher.AT_ONCE_BYTES))
        await pair.run(200)
        assert pair.follower.log("t").log_end_offset == 2
        pool.release()
        await turns()
        assert pair.follower.log("t").log_end_offset == 3


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> HeldPool:
    monkeypatch.setattr(fetcher, "AT_ONCE_BYTES", -1)
    return HeldPool(is_holding=False)


def announce_another(pair: Pair) -> None:
    """Another topic is in the metadata, and makes work for the disk with their next change."""
    pair.leader.add_topic("u")
    pair.leader.change("u", replicas=(NODE, FOLLOWER))
    pair.follower.topics["u"] = pair.leader.topics["u"]
    pair.follower.configs["u"] = pair.leader.configs["u"]


async def until_held(pair: Pair, pool: HeldPool) -> None:
    """The append of the next records is on the pool, and does not continue."""
    pool.is_holding = True
    pair.leader.append("t", b"a", b"b")
    while not pool.held:
        await pair.run(5)


async def test_a_role_is_taken_when_the_append_for_the_old_leader_has_ended(
    tmp_path: Path, pool: HeldPool
) -> None:
    async with following(tmp_path, pool=pool) as pair:
        await pair.add_followed("t")
        await until_held(pair, pool)
        pair.change("t", leader=FOLLOWER, leader_epoch=4, partition_epoch=1)
        await pair.run(200)
        assert not partition(pair).is_leader
        pool.stop_holding()
        await turns()
        assert partition(pair).is_leader
        assert pair.follower.log("t").epochs.entries() == [EpochEntry(3, 0), EpochEntry(4, 2)]


async def test_nothing_is_appended_for_a_leader_of_before(tmp_path: Path, pool: HeldPool) -> None:
    async with following(tmp_path, pool=pool) as pair:
        other = pair.add_leader(OTHER)
        await pair.add_followed("t")
        await until_held(pair, pool)
        pair.change("t", leader=OTHER, leader_epoch=4, partition_epoch=1)
        other.append("t", b"x")
        await pair.run(300)
        assert not asked_of(pair, leader=OTHER), "it is asked before the log is back"
        pool.stop_holding()
        await pair.run(500)
        assert pair.logs_are_equal("t", leader=OTHER)


async def test_a_deleted_topics_log_is_closed_after_the_append(
    tmp_path: Path, pool: HeldPool
) -> None:
    async with following(tmp_path, pool=pool) as pair:
        await pair.add_followed("t")
        log = pair.follower.log("t")
        await until_held(pair, pool)
        pair.delete("t")
        await pair.run(50)
        assert not log.health.is_closed
        pool.stop_holding()
        await pair.run(200)
        assert log.health.is_closed
        assert pair.follower.logs.get(TopicPartition("t", 0)) is None


async def test_a_fetcher_that_has_a_log_is_not_forgotten_with_its_leader(
    tmp_path: Path, pool: HeldPool
) -> None:
    """A stop would not wait for it, and close what it writes."""
    async with following(tmp_path, pool=pool) as pair:
        await pair.add_followed("t")
        await until_held(pair, pool)
        pair.delete("t")
        await pair.run(50)
        delta = MetadataDelta(pair.image)
        delta.changed_brokers.add(NODE)
        del pair.image.brokers[NODE]
        pair.fetchers.on_image(pair.image, delta)
        stopped = asyncio.ensure_future(pair.fetchers.stop())
        await turns()
        assert not stopped.done()
        pool.stop_holding()
        await asyncio.wait_for(stopped, 10)


async def test_another_isr_in_the_middle_of_an_append_changes_nothing(
    tmp_path: Path, pool: HeldPool
) -> None:
    async with following(tmp_path, pool=pool) as pair:
        await pair.add_followed("t")
        await until_held(pair, pool)
        pair.change("t", isr=(NODE, FOLLOWER), partition_epoch=1)
        await pair.run(50)
        pool.stop_holding()
        await pair.run(1_000)
        assert pair.logs_are_equal("t")
        assert pair.follower.log("t").high_watermark == 2


async def test_the_next_epoch_of_the_same_leader_is_asked_for_after_an_append(
    tmp_path: Path, pool: HeldPool
) -> None:
    async with following(tmp_path, pool=pool) as pair:
        await pair.add_followed("t")
        await until_held(pair, pool)
        pair.change("t", leader_epoch=4, partition_epoch=1)
        await pair.run(50)
        pool.stop_holding()
        pair.leader.append("t", b"c")
        await pair.run(700)
        assert asked_of(pair)[-1].current_leader_epoch == 4
        assert pair.logs_are_equal("t")


async def paused(pair: Pair, pool: HeldPool, **values: Any) -> None:
    """The metadata say something of the partition, and disks keep its next role waiting."""
    await pair.add_followed("t", b"a", ms=600)
    announce_another(pair)
    pool.is_holding = True
    pair.follower.change("t", **values)
    assert pool.held


@pytest.mark.parametrize("leader", [FOLLOWER, OTHER])
async def test_no_thread_has_the_log_while_its_next_role_is_on_its_way(
    tmp_path: Path, pool: HeldPool, leader: int
) -> None:
    async with following(tmp_path, pool=pool) as pair:
        pair.add_leader(OTHER)
        await paused(pair, pool, leader=leader, leader_epoch=4, partition_epoch=1)
        pair.leader.append("t", b"b")  # the leader of before answers, as it does not know yet
        await pair.run(100)
        assert not pair.follower.log("t").lease.is_leased
        pool.stop_holding()
        await turns()
        assert partition(pair).leader_id == leader
        assert pair.follower.log("t").log_end_offset == 1


async def test_what_was_told_during_a_pause_is_told_again(tmp_path: Path, pool: HeldPool) -> None:
    async with following(tmp_path, pool=pool) as pair:
        await paused(pair, pool, isr=(NODE, FOLLOWER), partition_epoch=1)
        raise_log_start(pair)
        await pair.run(1_000)
        assert pair.follower.log("t").log_start_offset == 0
        pool.stop_holding()
        await pair.run(2_000)
        assert pair.follower.log("t").log_start_offset == 1


async def test_what_was_told_during_a_pause_that_is_over_soon_is_told_again(
    tmp_path: Path, pool: HeldPool
) -> None:
    """The role is settled before the next question: the leader has not heard of the pause."""
    async with following(tmp_path, pool=pool) as pair:
        await pair.add_followed("t", b"a", partitions=2, ms=600)
        partition(pair).pause()
        led = pair.leader.replicas.partitions[TopicPartition("t", 0)]
        led.log.raise_log_start(1)
        pool.is_holding = True
        pair.leader.append("t", b"b", index=1)
        led.log_start_raised()
        await pair.run(100)
        assert pool.held, "the records of the other partition keep the next question waiting"
        both = (NODE, FOLLOWER)
        partition(pair).become_follower(
            leader_id=NODE, leader_epoch=3, partition_epoch=1, replicas=both, isr=both
        )
        pair.fetchers.on_events(ReplicaEvents(followed=(partition(pair),)))
        pool.stop_holding()
        await pair.run(2_000)
        assert pair.follower.log("t").log_start_offset == 1


async def test_an_append_that_ends_during_a_pause_loses_no_place(
    tmp_path: Path, pool: HeldPool
) -> None:
    """The log is longer than what was asked: the answer to the same question is of no use."""
    async with following(tmp_path, pool=pool) as pair:
        await pair.add_followed("t")
        await until_held(pair, pool)
        announce_another(pair)
        pair.change("t", isr=(NODE, FOLLOWER), partition_epoch=1)
        await pair.run(50)
        pool.release(1)
        await pool.until_held()  # the log of the other topic keeps the role waiting
        await pair.run(1_000)
        assert partition(pair).leader_id == -1
        pool.stop_holding()
        await pair.run(1_000)
        assert asked_of(pair)[-1].fetch_offset == 2
        pair.leader.append("t", b"c")
        await pair.run(1_000)
        assert pair.logs_are_equal("t")
        assert pair.follower.log("t").high_watermark == 3


async def test_a_stop_waits_for_the_append(tmp_path: Path, pool: HeldPool) -> None:
    async with following(tmp_path, pool=pool) as pair:
        await pair.add_followed("t")
        await until_held(pair, pool)
        stopping = asyncio.ensure_future(pair.fetchers.stop())
        await turns()
        assert not stopping.done()
        assert pair.follower.log("t").lease.is_leased
        pool.stop_holding()
        await turns()
        assert stopping.done()
        assert not pair.follower.log("t").lease.is_leased
