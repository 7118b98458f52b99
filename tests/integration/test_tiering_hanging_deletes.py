"""Deletions in the remote store that hang: what else is to be deleted continues."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.brokers.clients import produce
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import (
    QUICK,
    TIERED,
    create,
    delete_records,
    delete_topic,
    tiered_away,
    values,
)
from tests.support.stores.hanging_store import Orders

pytestmark = pytest.mark.lasts(seconds=60)

MakeBroker = Callable[..., BrokerProcess]
RECORDS = values(750)
HANGS_AFTER_MS = 1_000


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "orders")


def quick(make_broker: MakeBroker, orders: Orders, **settings: str) -> BrokerProcess:
    more = {key.replace("_", "."): value for key, value in settings.items()}
    broker = make_broker(tiered=True, settings=QUICK | more)
    broker.store = orders.settings(broker.remote_directory)
    return broker.start()


def fill(broker: BrokerProcess, *topics: str) -> None:
    for topic in topics:
        create(broker, topic, **TIERED)
        produce(broker, topic, RECORDS)
    for topic in topics:
        tiered_away(broker, topic)


def objects(broker: BrokerProcess, topic: str) -> list[Path]:
    return [path for path in broker.remote_paths(f"**/{topic}-*/**") if path.is_file()]


def test_a_removed_topic_whose_deletion_hangs_holds_up_no_other_topic(
    make_broker: MakeBroker, orders: Orders
) -> None:
    """Also before the call is given up, which is after two minutes."""
    broker = quick(make_broker, orders)
    fill(broker, "hanging", "other", "later")
    tier = broker.tier_pid()
    orders.hang_deletes("hanging")
    delete_topic(broker, "hanging")
    until(lambda: orders.begun("hanging"), "a deletion of it hangs")
    delete_topic(broker, "other")
    until(lambda: not objects(broker, "other"), "the other topic's objects are gone")
    delete_topic(broker, "later")
    until(lambda: not objects(broker, "later"), "and those of a third one")
    assert orders.begun("hanging") == 1
    assert objects(broker, "hanging")
    orders.let_go("hanging")
    until(lambda: not objects(broker, "hanging"), "what hung is gone, too")
    assert broker.tier_pid() == tier


def test_a_partition_whose_deletions_hang_delays_no_other_and_ends_no_tier(
    make_broker: MakeBroker, orders: Orders
) -> None:
    broker = quick(
        make_broker,
        orders,
        tidemark_remote_call_max_ms=str(HANGS_AFTER_MS),
        remote_log_manager_task_retry_backoff_max_ms="500",
    )
    fill(broker, "hanging", "other")
    tier = broker.tier_pid()
    orders.hang_deletes("hanging")
    first, second = broker.remote_segments("other")[1:3]
    delete_records(broker, "hanging", broker.remote_segments("hanging")[1])
    until(lambda: "storage plugin hangs" in broker.log_text(), "a deletion is given up")
    until(lambda: "hanging-0" in broker.http("/health")[1], "health names it")
    delete_records(broker, "other", first)
    until(lambda: first == broker.remote_segments("other")[0], "the other one's segment is gone")
    failed = broker.metric("tidemark_remote_passes_total", topic="hanging", kind="expire")
    until(
        lambda: (
            broker.metric("tidemark_remote_passes_total", topic="hanging", kind="expire")
            >= failed + 8
        ),
        "it was tried again and again",
    )
    assert broker.tier_pid() == tier, "one partition does not take half of the pool"
    delete_records(broker, "other", second)
    until(lambda: second == broker.remote_segments("other")[0], "the next one is gone")
    orders.let_go("hanging")
    until(lambda: len(broker.remote_segments("hanging")) < 3, "what hung is gone, too")
    until(lambda: "hanging-0" not in broker.http("/health")[1], "all is well")
    assert broker.tier_pid() == tier
