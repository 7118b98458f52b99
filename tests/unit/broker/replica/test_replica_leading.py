"""A leader with followers: what it answers, commits and proposes, asked by requests."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from broker.handlers.list_offsets import LATEST, ListOffsetsHandler
from broker.handlers.produce import ProduceHandler
from broker.replica.errors import NotEnoughReplicas
from broker.replica.follower_reads import Heard
from broker.replica.isr import AskedIsr
from broker.replica.isr_requests import IsrRequests
from broker.replica.leading import SLICE, Leading
from kafka_protocol.errors import ApiError, ErrorCode
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.image.sorted_map import SortedMap
from rlm.link.messages import Loss, Report, ValidationWithdrawn
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.data_plane import LAG_MS, NODE, NOW_MS, World, batch, call, finish, start
from tests.support.worlds.fetch import ask, parts
from tests.support.worlds.leading import Cluster, asked, broker
from tests.support.worlds.pools import HeldPool, turns
from tests.support.worlds.remote_log import NAMES, SOUND, impatient, lost

FETCH, PRODUCE, LIST = 15, 9, 8


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_record_is_committed_when_every_member_has_fetched_behind_it(world: World) -> None:
    cluster = Cluster(world)
    world.append("t", b"1")
    world.append("t", b"2")
    assert cluster.fetch(2, 0).high_watermark == 0
    assert cluster.fetch(3, 1).high_watermark == 0
    assert cluster.fetch(2, 2).high_watermark == 1
    assert cluster.fetch(3, 2).high_watermark == 2


def test_a_follower_gets_what_is_not_committed_and_a_consumer_does_not(world: World) -> None:
    cluster = Cluster(world)
    world.append("t", b"1")
    assert len(cluster.fetch(2, 0).records) > 0
    consumer = ask(world, FETCH, ("t", [{}]))
    assert len(parts(call(cluster.fetcher, FETCH, consumer))[0].records) == 0


def test_bytes_for_followers_and_for_consumers_are_counted_apart(world: World) -> None:
    cluster = Cluster(world, isr=(1, 2))
    world.append("t", b"1")
    counters, size = cluster.partition.counters, len(batch(b"1"))
    cluster.fetch(2, 0)
    assert (counters.replication_bytes_out.value, counters.bytes_out.value) == (size, 0)
    cluster.fetch(2, 1)
    call(cluster.fetcher, FETCH, ask(world, FETCH, ("t", [{}])))
    assert (counters.replication_bytes_out.value, counters.bytes_out.value) == (size, size)


async def test_acks_all_waits_for_the_members_and_acks_1_does_not(world: World) -> None:
    cluster = Cluster(world, isr=(1, 2))
    producer = ProduceHandler(world.replicas)
    fields = {"acks": -1, "timeout_ms": 60_000}
    waiting = asyncio.ensure_future(start(producer, PRODUCE, _produce(fields)))
    at_once = start(producer, PRODUCE, _produce(fields | {"acks": 1}))
    assert finish(producer, PRODUCE, at_once).responses[0].partition_responses[0].error_code == 0
    await asyncio.sleep(0)
    assert not waiting.done()
    await asked(cluster.fetcher, cluster.question(2, 1))
    answer = finish(producer, PRODUCE, await waiting)
    assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize(
    ("isr", "code"),
    [((1,), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), ((1, 2), ErrorCode.REQUEST_TIMED_OUT)],
)
async def test_what_is_not_committed_in_time_says_why(
    world: World, isr: tuple[int, ...], code: ErrorCode
) -> None:
    cluster = Cluster(world, isr=(1, 2), min_insync_replicas=2)
    producer = ProduceHandler(world.replicas)
    waiting = asyncio.ensure_future(
        start(producer, PRODUCE, _produce({"acks": -1, "timeout_ms": 1}))
    )
    cluster.commit(*isr)
    answer = finish(producer, PRODUCE, await waiting)
    assert answer.responses[0].partition_responses[0].error_code == code


def test_below_min_insync_replicas_nothing_becomes_committed(world: World) -> None:
    cluster = Cluster(world, isr=(1, 2), min_insync_replicas=2)
    world.append("t", b"1")
    cluster.commit(1)
    assert cluster.fetch(2, 1).high_watermark == 0
    assert cluster.proposals == [(1, 2)]
    cluster.commit(1, 2)
    assert cluster.partition.high_watermark == 1


def test_a_leader_takes_followers_under_the_epoch_that_it_leads(world: World) -> None:
    """Replicas are added.

    The leader epoch stays, and acks=all continues with one copy until then.
    """
    world.brokers = {one: broker(one) for one in (NODE, 2, 3)}
    world.add_topic("t", leader_epoch=4, min_insync_replicas=2)
    world.append("t", b"1")
    world.change("t", replicas=(1, 2), adding=(2,))
    world.change("t", replicas=(1, 2, 3), adding=(2, 3))
    cluster = Cluster.of(world)
    world.append("t", b"2")
    assert cluster.partition.high_watermark == 2
    assert cluster.fetch(2, 0).high_watermark == 2
    assert cluster.proposals == []
    cluster.fetch(2, 2)
    assert cluster.proposals == [(1, 2)]
    cluster.commit(1, 2)
    world.append("t", b"3")
    assert cluster.partition.high_watermark == 2
    assert cluster.fetch(2, 3).high_watermark == 3
    world.change("t", isr=(1,), elr=(2,))
    with pytest.raises(NotEnoughReplicas, match=r"t-0 has 1 .* min\.insync\.replicas=2"):
        world.append("t", b"4")


def test_a_leader_whose_added_replicas_are_taken_away_is_alone(world: World) -> None:
    world.brokers = {one: broker(one) for one in (NODE, 2)}
    world.add_topic("t", leader_epoch=4, min_insync_replicas=2)
    world.change("t", replicas=(1, 2), adding=(2,))
    cluster = Cluster.of(world)
    cluster.fetch(2, 0)
    cluster.commit(1, 2)
    world.append("t", b"1")
    assert cluster.partition.high_watermark == 0
    world.change("t", replicas=(1,), isr=(1,), adding=(), leader_epoch=5, partition_epoch=9)
    assert cluster.partition.high_watermark == 1
    assert world.leading.led == {}


def test_a_new_minimum_counts_for_the_watermark_at_once(world: World) -> None:
    cluster = Cluster(world, isr=(1, 2), min_insync_replicas=2)
    world.append("t", b"1")
    cluster.commit(1)
    assert cluster.partition.high_watermark == 0
    cluster.partition.set_config(replace(cluster.partition.log.config, min_insync_replicas=1))
    assert cluster.partition.high_watermark == 1


async def test_a_new_leader_counts_its_own_records_as_far_as_they_are_flushed(
    tmp_path: Path,
) -> None:
    pool = HeldPool(is_holding=False)
    world = World(tmp_path, pool=pool)
    cluster = Cluster(world, isr=(1, 2), flush_messages=2)
    world.append("t", b"1")
    await asked(cluster.fetcher, cluster.question(2, 1))
    pool.is_holding = True
    world.append("t", b"2")
    world.change("t", leader_epoch=5)
    await asked(cluster.fetcher, cluster.question(2, 2, current_leader_epoch=5))
    assert cluster.partition.high_watermark == 1
    await pool.until_held()
    pool.release()
    await turns()
    assert cluster.partition.high_watermark == 2


async def test_an_append_wakes_a_parked_follower_and_the_commit_a_consumer(
    world: World,
) -> None:
    cluster = Cluster(world, isr=(1, 2))
    slow = {"max_wait_ms": 60_000}
    follower = asyncio.ensure_future(asked(cluster.fetcher, cluster.question(2, 0) | slow))
    consumer = asyncio.ensure_future(asked(cluster.fetcher, ask(world, FETCH, ("t", [{}])) | slow))
    await asyncio.sleep(0)
    world.append("t", b"1")
    assert len(parts(await follower)[0].records) > 0
    assert not consumer.done()
    await asked(cluster.fetcher, cluster.question(2, 1))
    assert len(parts(await consumer)[0].records) > 0


def test_a_follower_that_lags_is_asked_to_leave_and_joins_at_the_watermark(world: World) -> None:
    cluster = Cluster(world)
    world.append("t", b"1")
    cluster.fetch(2, 1)
    cluster.after(LAG_MS)
    assert cluster.proposals == []
    cluster.fetch(2, 1)
    cluster.after(1)
    assert cluster.proposals == [(1, 2)]
    assert cluster.partition.high_watermark == 0, "3 may be a member still"
    cluster.commit(1, 2)
    assert cluster.partition.high_watermark == 1
    cluster.fetch(3, 0)
    assert cluster.proposals == [(1, 2)]
    cluster.fetch(3, 1)
    assert cluster.proposals == [(1, 2), (1, 2, 3)]


def test_a_member_that_had_all_before_an_append_does_not_lag_by_it(world: World) -> None:
    cluster = Cluster(world, isr=(1, 2))
    world.append("t", b"1")
    cluster.fetch(2, 1)
    world.clock.advance(2 * LAG_MS)  # its session continues, and says nothing of quiet partitions
    world.append("t", b"2")
    cluster.after(LAG_MS)
    world.append("t", b"3")
    assert cluster.proposals == []
    cluster.after(1)
    assert cluster.proposals == [(1,)], "it had not all before the last append"


def test_a_duplicate_does_not_say_that_a_member_was_caught_up(world: World) -> None:
    cluster = Cluster(world, isr=(1, 2))
    once = batch(b"1", producer_id=5, producer_epoch=0, base_sequence=0)
    cluster.partition.append(bytearray(once), now_ms=NOW_MS)
    cluster.fetch(2, 0)
    world.clock.advance(LAG_MS)
    assert cluster.partition.append(bytearray(once), now_ms=NOW_MS).is_duplicate
    cluster.after(1)
    assert cluster.proposals == [(1,)]


def test_a_pass_that_is_held_up_begins_all_clocks_again(world: World) -> None:
    class Watched:
        def __init__(self, number: int) -> None:
            self.number = number

        def review(self, now_ms: int) -> None:
            begun.append(leading.clocks_begun_ms)
            if self.number == SLICE - 1:
                world.clock.advance(LAG_MS)

    begun: list[int] = []
    leading: Leading[Watched] = Leading(
        world.ports,
        image=lambda: world.image,
        broker_epoch=lambda: 7,
        lag_ms_max=lambda: LAG_MS,
        bootstrap_hold_ms=0,
    )
    leading.led.update((Watched(number), None) for number in range(SLICE + 1))
    leading.review_soon()
    assert begun[-1] == leading.now_ms()


def test_a_pass_looks_again_at_what_is_said_while_it_runs(world: World) -> None:
    class Watched:
        def __init__(self, number: int) -> None:
            self.number = number

        def review(self, now_ms: int) -> None:
            looked.append(self.number)
            if len(looked) == SLICE + 1:  # the first ones were looked at before
                leading.review_soon()

    looked: list[int] = []
    leading: Leading[Watched] = Leading(
        world.ports,
        image=lambda: world.image,
        broker_epoch=lambda: 7,
        lag_ms_max=lambda: LAG_MS,
        bootstrap_hold_ms=0,
    )
    numbers = range(SLICE + 2)
    leading.led.update((Watched(number), None) for number in numbers)
    leading.review_soon()
    assert looked == [*numbers, *numbers]


def test_a_leader_that_stood_still_blames_nobody(world: World) -> None:
    """Also where the metadata have it look at its followers before its timer does."""
    cluster = Cluster(world)
    world.append("t", b"1")
    world.clock.advance(10 * LAG_MS)
    world.leading.review_soon()
    cluster.after(LAG_MS)
    assert cluster.proposals == []
    cluster.after(1)
    assert cluster.proposals == [(1,)]


@pytest.mark.parametrize(
    "values", [{"fenced": True}, {"in_controlled_shutdown": True}, {"epoch": 11}]
)
def test_a_broker_that_may_not_join_does_when_the_image_lets_it(
    world: World, values: Mapping[str, Any]
) -> None:
    cluster = Cluster(world, isr=(1, 2))
    world.brokers[3] = broker(3, **values)
    world.apply()
    if "epoch" in values:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster.fetch(3, 0).error_code == code
    else:
        cluster.fetch(3, 0)
        assert cluster.proposals == []
        world.brokers[3] = broker(3)
        world.apply()
        cluster.after(0)
        assert cluster.proposals == [(1, 2, 3)]


def _with_directories(world: World, *, failed: bool) -> None:
    """Each replica has a directory of its own; that of broker 3 has failed, or works."""
    ids = {one: bytes([one]) * 16 for one in (NODE, 2, 3, 9)}
    world.brokers = {one: broker(one, log_dirs=(ids[one], ids[9])) for one in (NODE, 2, 3)}
    if failed:
        world.brokers[3] = broker(3, log_dirs=(ids[9],))
    directories = (ids[NODE], ids[2], ids[3])
    world.change("t", directories=directories, isr=(1, 2) if failed else (1, 2, 3))


@pytest.mark.parametrize("fetches", [False, True], ids=["silent", "fetches"])
def test_a_member_whose_directory_fails_is_not_waited_for(world: World, fetches: bool) -> None:
    """A former leader fetches until it has to write: it keeps pace, and gets no record."""
    cluster = Cluster(world)
    _with_directories(world, failed=False)
    cluster.fetch(3, 0)
    world.append("t", b"1")
    cluster.fetch(2, 1)
    assert cluster.partition.high_watermark == 0
    _with_directories(world, failed=True)
    assert cluster.partition.high_watermark == 1
    if fetches:
        cluster.fetch(3, 1)
    world.append("t", b"2")
    cluster.fetch(2, 2)
    assert cluster.partition.high_watermark == 2


def test_a_replica_is_asked_for_again_when_its_directory_is_back(world: World) -> None:
    cluster = Cluster(world)
    _with_directories(world, failed=True)
    cluster.fetch(3, 0)
    cluster.after(LAG_MS // 2)
    assert cluster.proposals == [], "the controller would refuse it each time"
    ids = bytes([3]) * 16, bytes([9]) * 16
    world.brokers[3] = broker(3, log_dirs=ids)
    world.apply()
    assert cluster.proposals == [(1, 2, 3)]


def test_a_fenced_member_is_not_waited_for(world: World) -> None:
    cluster = Cluster(world)
    cluster.fetch(3, 0)
    world.append("t", b"1")
    cluster.fetch(2, 1)
    world.brokers[3] = broker(3, fenced=True)
    cluster.commit(1, 2)
    assert cluster.partition.high_watermark == 1


def test_a_follower_that_is_no_replica_by_now_is_not_asked_for(world: World) -> None:
    """The image is ahead of what the partitions were told."""
    cluster = Cluster(world, isr=(1, 2))
    topic = world.topics["t"]
    part = structs.replace(topic.partitions[0], replicas=(1, 2))
    for topics in [{topic.id: structs.replace(topic, partitions={0: part})}, {}]:
        world.image = replace(world.image, topics_by_id=SortedMap.of(topics))
        assert cluster.fetch(3, 0).error_code == ErrorCode.NONE
    assert cluster.proposals == []


def test_a_life_that_the_metadata_do_not_know_yet_may_not_join(world: World) -> None:
    cluster = Cluster(world, isr=(1, 2))
    cluster.fetch(3, 0, broker_epoch=12)
    assert cluster.proposals == []
    world.brokers[3] = broker(3, epoch=12)
    world.apply()  # it looks at its followers at once, not when its timer says so
    assert cluster.proposals == [(1, 2, 3)]


def test_a_leader_is_no_follower_of_its_own(world: World) -> None:
    cluster = Cluster(world)
    assert cluster.fetch(NODE, 0).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_bad_input_an_older_life_does_not_speak_for_a_later_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The code is Kafka's: its follower takes any other for an ERROR."""
    cluster = Cluster(world)
    world.append("t", b"1")
    cluster.fetch(2, 1)
    cluster.fetch(3, 0, broker_epoch=12)
    for _ in range(2):
        answer = cluster.fetch(3, 1, broker_epoch=10)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.partition.high_watermark == 0
    (said,) = caplog.messages
    assert "broker 3 fetches t-0, and has a later incarnation than epoch 10" in said


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"last_fetched_epoch": 3}, 0),
        ({"current_leader_epoch": -1}, 0),
        ({"current_leader_epoch": 5}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
    ids=["diverging", "of no leadership", "of a later leadership"],
)
def test_what_a_log_of_another_lineage_has_counts_for_nothing(
    world: World, more: dict[str, int], code: int
) -> None:
    cluster = Cluster(world, isr=(1, 2))
    world.append("t", b"1")
    assert cluster.fetch(2, 1, **more).error_code == code
    assert cluster.partition.high_watermark == 0
    cluster.fetch(2, 1)
    assert cluster.partition.high_watermark == 1


def test_a_new_leader_does_not_say_the_end_before_it_can_know_it(world: World) -> None:
    cluster = Cluster(world)
    world.append("t", b"1")
    world.change("t", leader=2, leader_epoch=5)
    world.change("t", leader=1, leader_epoch=6)
    lists = ListOffsetsHandler(
        world.replicas, clock=world.clock, pool=world.pool, holding=impatient(world)
    )

    def found(timestamp: int, version: int = LIST) -> tuple[int, int]:
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
        answer = call(lists, version, {"replica_id": -1, "topics": topics}).topics[0].partitions[0]
        return answer.error_code, answer.offset

    assert {found(one) for one in (LATEST, -3, 0)} == {(ErrorCode.OFFSET_NOT_AVAILABLE, -1)}
    assert (found(LATEST, 4), found(-2)) == ((ErrorCode.LEADER_NOT_AVAILABLE, -1), (0, 0))
    for replica in (2, 3):
        cluster.fetch(replica, 1, current_leader_epoch=6)
    assert [found(one) for one in (LATEST, -3, 0)] == [(0, 1), (0, 0), (0, 0)]


def test_a_leader_that_takes_its_role_again_knows_what_is_committed(world: World) -> None:
    """Its leader epoch began before what it has appended under it."""
    cluster = Cluster(world, isr=(1, 2))
    world.append("t", b"1")
    cluster.fetch(2, 1)
    world.append("t", b"2")
    cluster.partition.pause()
    world.change("t", isr=(1, 2))
    cluster.partition.check_watermark_settled()
    assert cluster.in_sync.epoch_start_offset == 0


def test_what_is_led_elsewhere_is_watched_no_more(world: World) -> None:
    cluster = Cluster(world)
    assert list(world.leading.led) == [cluster.partition]
    world.change("t", leader=2, leader_epoch=5)
    assert not world.leading.led


async def test_acks_all_is_refused_when_another_leads_before_it_waits(world: World) -> None:
    cluster = Cluster(world, isr=(1, 2))
    producer = ProduceHandler(world.replicas)
    answer = start(producer, PRODUCE, _produce({"acks": -1, "timeout_ms": 60_000}))
    # The append is made; before its answer has a turn, another leads and has committed its own.
    world.change("t", leader=2, leader_epoch=5)
    heard = Heard(world.clock, 500)
    cluster.partition.follow(high_watermark=1, log_start_offset=0, heard=heard)
    found = finish(producer, PRODUCE, await answer).responses[0].partition_responses[0]
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_uncleanly_elected_leader_says_first_that_it_has_recovered(world: World) -> None:
    cluster = Cluster(world)
    world.change("t", isr=(1,), leader_epoch=5, unclean_epoch=5, leader_recovery_state=1)
    assert cluster.proposals == [(1,)]
    proposal = cluster.in_sync.proposal
    assert proposal is not None
    assert proposal.is_recovered
    assert cluster.partition.unclean_epoch == 5
    world.change("t", unclean_epoch=-1, leader_recovery_state=0)
    assert cluster.partition.unclean_epoch == -1


@pytest.mark.parametrize("report", [SOUND, lost(Loss.HOLE)])
def test_a_tiered_log_recovers_once_the_tier_has_read_its_barrier(
    world: World, report: Report
) -> None:
    """Later owners learn of the election by that barrier: the metadata name it no more then."""
    cluster = Cluster(world, remote_storage_enable=True)
    unclean: dict[str, Any] = {"unclean_epoch": 5, "leader_recovery_state": 1}
    world.change("t", isr=(1,), leader_epoch=5, **unclean)
    cluster.fetch(2, 0, current_leader_epoch=5)
    for early in (ValidationWithdrawn(*NAMES), lost(Loss.LEADER_EPOCH)):
        cluster.partition.take_report(early)
    assert cluster.proposals == [], "nobody joins before either"
    cluster.partition.take_report(report)
    assert cluster.proposals == [(1,)]
    proposal = cluster.in_sync.proposal
    assert proposal is not None
    assert proposal.is_recovered
    world.change("t", isr=(1,), leader_epoch=6, **unclean)
    assert cluster.proposals == [(1,)], "the barrier of an earlier epoch does not count"


def test_a_barrier_counts_that_was_read_before_there_were_followers(world: World) -> None:
    """A partition of one replica grows under the same leader epoch: no other report comes."""
    world.brokers = {one: broker(one) for one in (NODE, 2)}
    world.add_topic("t", remote_storage_enable=True)
    world.change("t", leader_epoch=5, unclean_epoch=5, leader_recovery_state=1)
    world.replicas.require("t", 0).take_report(SOUND)
    cluster = Cluster.of(world)
    world.change("t", replicas=(NODE, 2), adding=(2,))
    assert cluster.proposals == [(NODE,)]
    world.replicas.require("t", 0).take_report(ValidationWithdrawn(*NAMES))
    assert not world.replicas.require("t", 0).has_barrier


def test_an_isr_below_the_minimum_is_asked_for_when_the_log_is_flushed(world: World) -> None:
    cluster = Cluster(world, isr=(1, 2), min_insync_replicas=2)
    world.append("t", b"1")
    assert cluster.partition.log.recovery_point == 0
    world.change("t", isr=(1,))
    assert cluster.partition.log.recovery_point == 1


class Controller:
    """Answers as it is told; notes what is asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), []

    async def __call__(self, asked: Mapping[ReplicaId, AskedIsr]) -> Any:
        self.asked.append(asked)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict.fromkeys(asked, answer)


async def _proposed(world: World, *answers: Any) -> tuple[Cluster, Controller]:
    """A member has left by lagging; the controller answers so."""
    cluster, controller = Cluster(world, isr=(1, 2), min_insync_replicas=2), Controller(*answers)
    requests = IsrRequests(controller, world.scheduler, world.pool)
    world.leading.propose = requests.propose
    world.append("t", b"1")
    cluster.after(LAG_MS + 1)
    for _ in range(20):
        await asyncio.sleep(0)
    return cluster, controller


async def test_what_the_controller_commits_is_the_isr_when_the_image_says_so(world: World) -> None:
    cluster, controller = await _proposed(world, ErrorCode.NONE)
    assert [proposal.members for _, proposal in controller.asked[0].values()] == [(1,)]
    assert cluster.partition.isr == (1, 2), "the minimum may be older than this answer"
    cluster.commit(1)
    assert cluster.partition.isr == (1,)
    assert len(controller.asked) == 1
    assert cluster.partition.log.recovery_point == 1, "flushed before it was asked for"


async def test_only_the_last_proposal_of_a_flushed_partition_is_sent(
    world: World,
) -> None:
    cluster, controller, pool = (
        Cluster(world, isr=(1, 2)),
        Controller(*[ErrorCode.NONE] * 3),
        HeldPool(),
    )
    world.add_topic("full", partitions=1)
    world.change("full", replicas=(1, 2, 3), isr=(1, 2, 3), leader_epoch=4)
    world.change("t", replicas=(1, 2))
    cluster.partition.set_config(replace(cluster.partition.log.config, min_insync_replicas=2))
    world.leading.propose = IsrRequests(controller, world.scheduler, pool).propose
    world.append("t", b"1")
    world.append("full", b"1")
    cluster.after(LAG_MS + 1)
    world.replicas.require("full", 0).review(world.leading.now_ms())
    await turns()
    assert [_topics(asked, world) for asked in controller.asked] == [["full"]]
    first = cluster.in_sync.proposal
    world.change("t", isr=(1, 2))  # the image says something newer: it is proposed again
    cluster.after(LAG_MS + 1)
    assert cluster.in_sync.proposal not in (None, first)
    pool.release(1)
    await turns()
    assert len(controller.asked) == 1, "that flush began before this was proposed"
    pool.release()
    await turns()
    assert [_topics(asked, world) for asked in controller.asked[1:]] == [["t"]]


async def test_an_isr_is_not_asked_for_whose_log_cannot_be_flushed(tmp_path: Path) -> None:
    world = World(tmp_path, disk=(disk := FaultyDisk()))
    cluster, controller = Cluster(world, isr=(1, 2), min_insync_replicas=2), Controller()
    world.leading.propose = IsrRequests(controller, world.scheduler, world.pool).propose
    world.append("t", b"1")
    in_sync = cluster.in_sync
    disk.fail(["fsync"])
    cluster.after(LAG_MS + 1)
    assert in_sync.proposal is not None
    await turns()
    assert controller.asked == []
    assert in_sync.proposal is None


async def test_a_refused_isr_counts_no_more(world: World) -> None:
    cluster, _ = await _proposed(world, ErrorCode.INELIGIBLE_REPLICA)
    assert cluster.in_sync.proposal is None


async def test_records_wait_no_more_for_a_follower_that_is_refused(world: World) -> None:
    cluster = Cluster(world, isr=(1, 2))
    await asked(cluster.fetcher, cluster.question(3, 0))
    world.append("t", b"1")
    await asked(cluster.fetcher, cluster.question(2, 1))
    world.brokers[3] = broker(3, fenced=True)
    world.apply()
    assert cluster.partition.high_watermark == 0, "3 may be a member by now"
    requests = IsrRequests(Controller(ErrorCode.INELIGIBLE_REPLICA), world.scheduler, world.pool)
    requests.propose(cluster.partition)
    await turns()
    assert cluster.partition.high_watermark == 1


async def test_an_answer_to_an_earlier_proposal_does_not_end_a_later_one(world: World) -> None:
    cluster = Cluster(world, isr=(1, 2))
    first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
    questions: list[list[Any]] = []

    async def controller(asked: Mapping[ReplicaId, AskedIsr]) -> Any:
        questions.append([one.proposal for one in asked.values()])
        return dict.fromkeys(asked, await (second if questions[1:] else first))

    requests = IsrRequests(controller, world.scheduler, world.pool)
    world.leading.propose = requests.propose
    await asked(cluster.fetcher, cluster.question(3, 0))
    await turns()
    world.change("t", isr=(1,))
    await asked(cluster.fetcher, cluster.question(2, 0))
    later = cluster.in_sync.proposal
    first.set_result(ErrorCode.INELIGIBLE_REPLICA)
    await turns()
    assert questions[1:] == [[later]]
    await requests.stop()


async def test_an_outdated_isr_waits_for_the_image(world: World) -> None:
    cluster, controller = await _proposed(world, ErrorCode.INVALID_UPDATE_VERSION)
    assert len(controller.asked) == 1
    cluster.after(1)
    assert len(controller.asked) == 1
    world.change("t", isr=(1,))
    assert cluster.partition.isr == (1,)


@pytest.mark.parametrize(
    ("error", "is_open"),
    [
        (NotControllerError("nobody leads"), False),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT, "no answer"), True),
    ],
)
async def test_an_isr_without_an_answer_is_asked_for_again(
    world: World, error: Exception, is_open: bool
) -> None:
    cluster, controller = await _proposed(world, error, ErrorCode.INELIGIBLE_REPLICA)
    in_sync = cluster.in_sync
    world.scheduler.advance(1_000)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(controller.asked) == 2
    assert in_sync.proposal is None
    assert in_sync._doubtful == (frozenset({(1,)}) if is_open else frozenset())


def _topics(asked: Mapping[ReplicaId, AskedIsr], world: World) -> list[str]:
    return [world.image.topics_by_id[one.topic_id].name for one in asked]


def _produce(fields: Mapping[str, Any]) -> dict[str, Any]:
    data = [{"name": "t", "partition_data": [{"index": 0, "records": bytes(batch(b"x"))}]}]
    return {"transactional_id": None, "topic_data": data} | fields
