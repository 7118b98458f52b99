"""A tier whose start fails comes back; a broker short of descriptors continues; a stop is clean."""

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import (
    QUICK,
    TIERED,
    as_read,
    create,
    tiered_away,
    values,
)
from tests.support.stores.hanging_store import REFUSED, Orders

pytestmark = pytest.mark.lasts(seconds=40)

MakeBroker = Callable[..., BrokerProcess]
RECORDS = values(700)


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "orders")


@pytest.fixture
def broker(make_broker: MakeBroker, orders: Orders) -> BrokerProcess:
    made = make_broker(tiered=True, settings=QUICK)
    made.store = orders.settings(made.remote_directory)
    return made.start()


def is_green(broker: BrokerProcess) -> bool:
    found = json.loads(broker.http("/health")[1])
    return set(found["parts"].values()) == {"green"}


@contextmanager
def without_descriptors(broker: BrokerProcess) -> Iterator[Callable[[], None]]:
    """The broker can open one file more, no second one; call what is given when it closes some."""
    limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)

    def limit() -> None:
        used = {int(path.name) for path in Path(f"/proc/{broker.pid}/fd").iterdir()}
        free = next(number for number in range(limits[0]) if number not in used)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (free + 1, limits[1]))

    limit()
    try:
        yield limit
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)


@pytest.mark.smoke
def test_a_tier_whose_plugin_refuses_to_start_comes_back_when_it_does_not(
    broker: BrokerProcess, orders: Orders
) -> None:
    create(broker, "tides", **TIERED)
    produce(broker, "tides", RECORDS)
    tiered_away(broker, "tides")
    orders.refuse_starts()
    broker.kill_tier()
    until(lambda: broker.log_text().count(REFUSED) > 1, "its start fails again and again")
    assert not is_green(broker)
    assert broker.http("/ready")[0] == 200, "clients of local data are served"
    produce(broker, "tides", RECORDS)
    orders.let_start()
    until(lambda: is_green(broker), "it works again")
    assert read_all(broker, "tides") == as_read(RECORDS * 2)
    tiered_away(broker, "tides")


def test_a_tier_that_cannot_be_started_for_want_of_descriptors_comes_back(
    broker: BrokerProcess,
) -> None:
    create(broker, "tides", **TIERED)
    produce(broker, "tides", RECORDS)
    tiered_away(broker, "tides")
    with without_descriptors(broker) as limit:
        broker.kill_tier()

        def is_tried_in_vain() -> bool:
            limit()  # what led to the tier is closed now
            return broker.log_text().count("the tier process cannot be started") > 1

        until(is_tried_in_vain, "it is tried again and again")
    until(lambda: is_green(broker), "it works again")
    assert read_all(broker, "tides") == as_read(RECORDS)
    produce(broker, "tides", RECORDS)
    tiered_away(broker, "tides")


@pytest.mark.smoke
def test_a_segment_is_copied_later_if_no_descriptor_is_left_to_open_it(
    broker: BrokerProcess, orders: Orders
) -> None:
    create(broker, "tides", **TIERED)
    orders.hang_copies()
    produce(broker, "tides", RECORDS)
    closed = broker.local_segments("tides")[:-1]
    with without_descriptors(broker):
        orders.let_copy()
        until(lambda: "cannot be used now" in broker.log_text(), "a segment cannot be opened")
    produce(broker, "tides", RECORDS)
    assert "partition is offline" not in broker.log_text()
    until(lambda: set(closed) <= set(broker.remote_segments("tides")), "all are copied")
    until(lambda: is_green(broker), "all is well")
    assert read_all(broker, "tides") == as_read(RECORDS * 2)


def test_a_stop_is_clean_however_long_the_store_takes_to_close(
    broker: BrokerProcess, orders: Orders
) -> None:
    create(broker, "tides", **TIERED)
    produce(broker, "tides", RECORDS)
    tiered_away(broker, "tides")
    orders.close_slowly()
    assert broker.terminate() == 0
    assert orders.is_closed
    assert "tier process ends itself" not in broker.log_text()
    broker.start()
    assert read_all(broker, "tides") == as_read(RECORDS)
