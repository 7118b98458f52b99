"""Remote reads of the broker: asked rightly, checked again, and ended by their deadline."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.remote.assignments import Assignments, settings_of
from broker.remote.fetch_metrics import RemoteFetchMetrics, RemoteStateMetrics
from broker.remote.reads import epoch_span
from broker.replica.hosting import ReplicaEvents
from broker.replica.topic_metrics import TopicMetrics
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from metadata_topic.image.model import RECOVERING
from rlm.link.endpoint import Received
from rlm.link.messages import (
    Assign,
    Loss,
    OffsetForTimestamp,
    Read,
    Released,
    TimestampAnswer,
    Unassign,
)
from runtime.metrics import Registry
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler
from tests.support.worlds.data_plane import World
from tests.support.worlds.remote_reads import (
    TOPIC_ID,
    Bench,
    Hosted,
    Log,
    Replicas,
    Tier,
    code_of,
)


async def test_a_question_names_the_epoch_of_the_offset_and_where_it_ends() -> None:
    bench = Bench()
    bench.read(10)
    question = bench.tier.asked[0][0]
    assert isinstance(question, Read)
    assert (question.offset_epoch, question.epoch_end, question.wait_ms) == (1, 40, 500)
    assert epoch_span(Log(), 40) == (4, 100)


async def test_regions_come_back_and_are_released_when_nobody_holds_them() -> None:
    bench = Bench()
    future = bench.read()
    bench.answer()
    fetched = await future
    region = fetched.regions[0]
    assert bytes(region) == b"batches"
    assert fetched.size_bytes == 7
    del fetched, region, future
    bench.tier.asked.clear()
    bench.scheduler.advance(1_000)  # a cancelled timer holds what it was for until it is due
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert bench.tier.told == [Released([77])]


@pytest.mark.parametrize("change", [{"leader_epoch": 3}, {"topic_id": b"U" * 16}, {"partition": 1}])
async def test_an_answer_for_another_id_or_epoch_is_dropped_and_released(
    change: dict[str, Any],
) -> None:
    bench = Bench()
    future = bench.read()
    bench.answer(**change)
    assert (await future).regions == []
    bench.tier.asked.clear()
    del future
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert bench.tier.told == [Released([77])]


async def test_an_answer_under_a_later_leader_epoch_is_dropped_and_released() -> None:
    """The chain may be another since the tier was asked: those bytes may be off it."""

    bench = Bench()
    future = bench.read()
    bench.hosted.leader_epoch = 5
    bench.answer()
    fetched = await future
    assert (fetched.regions, fetched.size_bytes) == ([], 0)
    bench.tier.asked.clear()
    del future, fetched
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert bench.tier.told == [Released([77])]


async def test_a_log_start_that_moved_meanwhile_is_checked_again() -> None:
    bench = Bench()
    future = bench.read(10)
    bench.hosted.log.log_start_offset = 11
    bench.answer()
    await asyncio.wait([future])
    assert code_of(future) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(bench.read(10)) == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_error_of_the_tier_reaches_the_client_under_its_code() -> None:
    bench = Bench()
    future = bench.read()
    bench.answer(regions=[], error=2, message="damaged")
    await asyncio.wait([future])
    assert code_of(future) == ErrorCode.CORRUPT_MESSAGE


async def test_a_silent_tier_leaves_the_partition_empty_at_the_deadline() -> None:
    bench = Bench()
    future = bench.read()
    bench.scheduler.advance(499)
    assert not future.done()
    bench.scheduler.advance(60)
    assert (await future).regions == []


async def test_while_the_tier_is_gone_reads_are_parked_and_then_get_56() -> None:
    bench = Bench()
    bench.tier.up = False
    future = bench.read()
    bench.scheduler.advance(400)
    assert not future.done(), "clients must not spin"
    bench.scheduler.advance(200)
    assert code_of(future) == ErrorCode.KAFKA_STORAGE_ERROR


async def test_read_committed_adds_what_the_local_log_knows() -> None:
    bench = Bench()
    future = bench.read(10, read_committed=True)
    bench.answer(aborted=[(7, 3)])
    assert (await future).aborted_transactions == [(7, 3), (9, 10)]


async def test_read_committed_asks_again_if_segments_left_the_local_log() -> None:
    bench = Bench()
    future = bench.read(10, read_committed=True)
    bench.hosted.log.local_log_start_offset = 60  # a marker may be in neither list
    bench.answer(aborted=[])
    assert not future.done()
    assert len(bench.tier.asked) == 2
    bench.answer(aborted=[(7, 3)])
    assert (await future).aborted_transactions == [(7, 3), (9, 10)]


async def test_read_committed_names_its_lineage() -> None:
    bench = Bench()
    bench.read(45, read_committed=True)
    bench.read(10, read_committed=True)
    bench.read(10)
    chains = [question.chain for question, _ in bench.tier.asked]
    assert chains == [[(4, 40)], [(1, 0), (4, 40)], []]


async def test_an_offset_whose_epoch_is_lost_gets_9() -> None:
    bench = Bench()
    bench.hosted.verdict = Loss.CHAIN
    assert code_of(bench.read(10)) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert bench.tier.asked == []


async def test_a_time_search_gives_what_was_found_none_or_7() -> None:
    bench = Bench()
    name = TopicPartition("orders", 0)
    names = (TOPIC_ID, 0, 4)
    for answer, wanted in (
        (TimestampAnswer(*names, timestamp_ms=5, offset=6, offset_epoch=1), (5, 6, 1)),
        (TimestampAnswer(*names), None),
    ):
        future = bench.reads.offset_for_timestamp(name, 5, 1_500)
        question, asked = bench.tier.asked[-1]
        assert isinstance(question, OffsetForTimestamp)
        asked.set_result(Received(answer))
        assert await future == wanted
    late = bench.reads.offset_for_timestamp(name, 5, 1_500)
    bench.scheduler.advance(600)
    assert code_of(late) == ErrorCode.REQUEST_TIMED_OUT


def test_the_tier_is_told_differences_and_everything_again_when_it_is_new() -> None:
    hosted, tier, offsets = Hosted(), Tier(), [11, 10, 9, 8]
    replicas = Replicas(hosted)
    assignments = Assignments(
        replicas,  # type: ignore[arg-type]
        tier,  # type: ignore[arg-type]
        ManualScheduler(ManualClock()),
        lambda partition: True,
        offsets.pop,
    )
    for _ in range(2):
        assignments.on_replicas(ReplicaEvents(led=(hosted,)))  # type: ignore[arg-type]
    assert [type(message) for message, _ in tier.asked] == [Assign]
    assert tier.asked[0][0].metadata_offset == 8, "of the image that shows the topic"
    hosted.leader_epoch = 6
    assignments.on_replicas(ReplicaEvents(led=(hosted,)))  # type: ignore[arg-type]
    assert tier.asked[-1][0].leader_epoch == 6
    hosted.log.config = LogConfig()
    hosted.verdict = Loss.LOG_END
    assignments.on_replicas(ReplicaEvents(configured=(hosted,)))  # type: ignore[arg-type]
    assert isinstance(tier.asked[-1][0], Unassign)
    assert hosted.verdict is Loss.LOG_END, "found, and validated by nobody since"
    hosted.log.config = LogConfig(remote_log_delete_on_disable=True)
    assignments.on_tier_up()
    assert tier.asked[-1][0].settings.mode == "drop"


@pytest.mark.parametrize("is_on", [False, True])
@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("reads_only", [False, True])
def test_each_log_that_is_assigned_counts_as_validated_by_the_tier(
    is_on: bool, drops: bool, reads_only: bool
) -> None:
    config = LogConfig(
        remote_storage_enable=is_on,
        remote_log_delete_on_disable=drops,
        remote_log_copy_disable=reads_only,
    )
    assert (settings_of(config) is not None) == config.is_tiered


def test_the_epoch_of_an_unclean_election_goes_from_the_image_to_the_tier(tmp_path: Path) -> None:
    world, tier = World(tmp_path), Tier()
    world.add_topic("t", leader_epoch=6, remote_storage_enable=True)
    assignments = Assignments(
        world.replicas,
        tier,  # type: ignore[arg-type]
        ManualScheduler(ManualClock()),
        lambda partition: True,
        lambda: 1,
    )
    elected = {"leader_epoch": 7, "leader_recovery_state": RECOVERING, "unclean_epoch": 7}
    world.replicas.listeners.append(assignments.on_replicas)
    for change in ({}, elected, {"leader_epoch": 9}, {"leader_epoch": 9, "unclean_epoch": -1}):
        world.change("t", **change)
    told = [message for message, _ in tier.asked]
    assert [(assign.leader_epoch, assign.unclean_epoch) for assign in told] == [
        (6, -1),
        (7, 7),
        (9, 7),
        (9, -1),
    ]
    world.logs.close(clean=False)


def test_topic_settings_become_modes_and_bounds() -> None:
    assert settings_of(LogConfig()) is None
    found = settings_of(
        LogConfig(remote_storage_enable=True, retention_ms=5, remote_log_copy_disable=True)
    )
    assert found is not None
    assert (found.mode, found.retention_ms) == ("read_only", 5)


async def test_what_a_tier_before_lent_is_not_given_back_to_the_next() -> None:
    """Tiers number their chunks alike: the next one would write over a chunk that is being sent."""

    bench = Bench()
    future = bench.read()
    bench.answer()
    fetched = await future
    bench.reads.on_tier_down()
    bench.tier.asked.clear()
    del fetched, future
    bench.scheduler.advance(1_000)
    for _ in range(3):
        await asyncio.sleep(0)
    assert bench.tier.told == []
    future = bench.read()
    bench.answer()
    assert (await future).size_bytes == 7
    bench.tier.asked.clear()
    del future
    bench.scheduler.advance(1_000)
    for _ in range(3):
        await asyncio.sleep(0)
    assert bench.tier.told == [Released([77])]


def count_all(metrics: RemoteFetchMetrics, topic: str) -> None:
    metrics.asked(topic)
    metrics.got(topic, 100)
    metrics.failed(topic)
    metrics.look_up_expired(TopicPartition(topic, 3))
    metrics.expired()


def test_all_of_a_topic_goes_with_it_and_a_late_answer_brings_nothing_back() -> None:
    registry = Registry()
    metrics, hosted = RemoteFetchMetrics(registry), TopicMetrics(registry)

    def samples(topic: str) -> set[str]:
        return {sample.name for sample in registry.samples() if sample.labels.get("topic") == topic}

    metrics.attach(hosted)
    hosted.of("orders"), hosted.of("others")
    count_all(metrics, "orders")
    count_all(metrics, "others")
    assert len({name for name in samples("orders") if "Remote" in name}) == 4
    hosted.forget("orders")
    assert samples("orders") == set()
    count_all(metrics, "orders")
    assert samples("orders") == set()
    assert samples("others")


def test_metrics_of_auxiliary_state_have_kafka_names_and_go_with_the_topic() -> None:
    registry = Registry()
    metrics, hosted = RemoteStateMetrics(registry), TopicMetrics(registry)

    def counted(topic: str) -> dict[str, float]:
        prefix = "kafka_server_BrokerTopicMetrics_BuildRemoteLogAuxState"
        return {
            sample.name.removeprefix(prefix): sample.value
            for sample in registry.samples()
            if sample.labels == {"topic": topic} and sample.name.startswith(prefix)
        }

    def build_all() -> None:
        for topic in ("orders", "orders", "others"):
            metrics.building(topic)
        metrics.building_failed("orders")

    metrics.building("orders")  # of no topic that is hosted
    metrics.attach(hosted)
    metrics.building("orders")
    assert counted("orders") == {}
    hosted.of("orders"), hosted.of("others")
    build_all()
    assert counted("orders") == {"RequestsPerSec_total": 2, "ErrorsPerSec_total": 1}
    assert counted("others") == {"RequestsPerSec_total": 1}
    hosted.forget("orders")
    build_all()
    assert counted("orders") == {}
