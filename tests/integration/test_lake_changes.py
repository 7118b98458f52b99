"""A log that changes while it is read: fixed offsets give the same rows, or a named error."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import ResourceType

from kafka_protocol.types import TopicPartition
from pipeline.errors import DataLossError, StoreUnreachableError
from pipeline.opening import open_log
from pipeline.values import OffsetRange, SplitLimits, Where
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import alter, delete_topic
from tests.support.lake.cluster import (
    Filling,
    delete_prefix,
    fill,
    make_topic,
    produce_more,
    settle,
    store_of,
    tiered_cluster,
    where,
)
from tests.support.lake.consumer import rows_of_consumer
from tests.support.lake.reading import batches_of_plan, rows_of_log, whole_ranges
from tests.support.lake.rows import Row, rows_of_arrow

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=30), pytest.mark.timeout(900)]
FILLING = Filling(partitions=1, epochs=1, records=3_000, deleted=0)
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[BrokerProcess]:
    with tiered_cluster(tmp_path / "broker") as broker:
        fill(broker, "orders", FILLING)
        yield broker


def test_fixed_offsets_give_the_same_rows_while_the_log_continues(filled: BrokerProcess) -> None:
    rng, asked = Random(1), {ORDERS: OffsetRange(500, 2_990)}
    assert remote_end(filled) < 2_990  # the rest is served by the broker
    before = rows_of_log(where(filled), ranges=asked)
    assert before == list(rows_of_consumer(filled.bootstrap, "orders", ranges=asked))
    delete_prefix(filled, "orders", {0: 500})
    produce_more(filled, "orders", FILLING, rng)
    assert rows_of_log(where(filled), ranges=asked) == before
    settle(filled, "orders")
    assert remote_end(filled) > 2_990  # all of it is remote now
    assert rows_of_log(where(filled), ranges=asked) == before


def test_offsets_that_are_deleted_are_lost_by_name(filled: BrokerProcess) -> None:
    asked = {ORDERS: OffsetRange(500, 2_990)}
    before = rows_of_log(where(filled), ranges=asked)
    delete_prefix(filled, "orders", {0: 600})
    with pytest.raises(DataLossError, match="orders") as lost:
        rows_of_log(where(filled), ranges=asked)
    assert "\n" not in str(lost.value)
    lenient = where(filled, fail_on_data_loss=False)
    assert rows_of_log(lenient, ranges=asked) == [row for row in before if row.offset >= 600]


def test_segments_deleted_between_plan_and_read_are_lost_by_name(filled: BrokerProcess) -> None:
    asked = {ORDERS: OffsetRange(0, 2_990)}
    before = rows_of_log(where(filled), ranges=asked)
    for strict in (True, False):
        with closing(open_log(where(filled, fail_on_data_loss=strict))) as log:
            plan = log.plan(asked, SplitLimits())
            bases = filled.remote_segments("orders")
            if strict:
                delete_prefix(filled, "orders", {0: 2_000})
                until(lambda b=bases: filled.remote_segments("orders") != b, "segments go")  # type: ignore[misc]
                with pytest.raises(DataLossError, match="orders") as lost:
                    list(batches_of_plan(log, plan))
                assert "\n" not in str(lost.value)
            else:
                rows = list(rows_of_arrow(batches_of_plan(log, plan)))
                assert rows == before[-len(rows) :] != []


def test_a_topic_made_again_is_another_one(filled: BrokerProcess) -> None:
    with closing(open_log(where(filled))) as log:
        asked = whole_ranges(log, ["orders"])
        plan = log.plan(asked, SplitLimits())
        delete_topic(filled, "orders")
        make_topic(filled, "orders", FILLING)
        produce_more(filled, "orders", FILLING, Random(2))
        settle(filled, "orders")
        again = list(rows_of_consumer(filled.bootstrap, "orders"))
        old: list[Row] = []
        with suppress(DataLossError):
            old = list(rows_of_arrow(batches_of_plan(log, plan)))
        assert not set(old) & set(again)
    assert rows_of_log(where(filled), "orders") == again
    until(lambda: len(filled.remote_paths("orders-*")) == 1, "the old topic's objects go")
    assert rows_of_log(Where(store=store_of(filled)), "orders") == remote_part(filled, again)


@pytest.mark.long(seconds=40)
def test_reads_during_retention_give_equal_rows_until_data_loss_is_raised(
    filled: BrokerProcess,
) -> None:
    """Producing, copying, expiring and total retention continue all the while."""
    asked, reads = {ORDERS: OffsetRange(500, 2_990)}, 0
    before = rows_of_log(where(filled), ranges=asked)
    alter(filled, ResourceType.TOPIC, "orders", retention_bytes="8000000")
    with ThreadPoolExecutor(1) as pool:
        producing = pool.submit(produce_rounds, filled, 12)
        while not producing.done() or remote_start(filled) < 500:
            try:
                rows = rows_of_log(where(filled), ranges=asked)
            except DataLossError:
                break
            assert rows == before
            reads += 1
        producing.result()
    until(lambda: remote_start(filled) > 500, "retention takes the rows")
    with pytest.raises(DataLossError, match="orders"):
        rows_of_log(where(filled), ranges=asked)
    assert reads > 3


def produce_rounds(broker: BrokerProcess, count: int) -> None:
    for number in range(count):
        produce_more(broker, "orders", FILLING, Random(number))


def remote_start(broker: BrokerProcess) -> int:
    return min(broker.remote_segments("orders"))


def remote_end(broker: BrokerProcess) -> int:
    with closing(open_log(where(broker))) as log:
        return log.remote_ends(log.partitions(["orders"]))[ORDERS]


def remote_part(broker: BrokerProcess, rows: list[Row]) -> list[Row]:
    end = remote_end(broker)
    return [row for row in rows if row.offset < end]


def test_a_store_that_cannot_be_reached_from_here_is_one_line(filled: BrokerProcess) -> None:
    with closing(open_log(where(filled))) as log:
        plan = log.plan(whole_ranges(log, ["orders"]), SplitLimits())
        away = filled.remote_directory.with_name("away")
        shutil.move(filled.remote_directory, away)
        with pytest.raises(StoreUnreachableError) as unreachable:
            list(batches_of_plan(log, plan))
        assert "\n" not in str(unreachable.value)
        shutil.move(away, filled.remote_directory)
