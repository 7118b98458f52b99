"""Switching tiering off and on, deleting records and topics, and both kinds of total retention."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import ResourceType

from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.brokers.process import BrokerProcess, running, until
from tests.support.brokers.tiered_topics import (
    QUICK,
    TIERED,
    alter,
    as_read,
    create,
    delete_records,
    delete_topic,
    tiered_away,
    values,
)
from tests.support.quorum.broker_beside import ALONE_OR_BESIDE
from tests.support.stores.audit import agreed

TOPIC = ResourceType.TOPIC
RECORDS = values(1_000)


@pytest.fixture(scope="module", **ALONE_OR_BESIDE)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("switches")
    yield from running(request.param(directory, tiered=True, settings=QUICK))


def tiered(broker: BrokerProcess, topic: str, **config: str) -> None:
    settings = {key.replace(".", "_"): value for key, value in TIERED.items()} | config
    create(broker, topic, **settings)
    produce(broker, topic, RECORDS)
    tiered_away(broker, topic)


def passes_more(broker: BrokerProcess, topic: str) -> None:
    """Wait until copying and expiring have begun and ended once more."""
    for kind in ("copy", "expire"):
        before = passes(broker, topic, kind)
        until(lambda b=before, k=kind: passes(broker, topic, k) >= b + 2, f"{kind} ran")  # type: ignore[misc]


def passes(broker: BrokerProcess, topic: str, kind: str) -> float:
    return broker.metric("tidemark_remote_passes_total", topic=topic, kind=kind)


def test_keeping_what_is_remote_copies_no_more_and_stays_readable(broker: BrokerProcess) -> None:
    tiered(broker, "keep")
    before = broker.remote_segments("keep")
    alter(
        broker,
        TOPIC,
        "keep",
        remote_log_copy_disable="true",
        local_retention_bytes="-2",
        local_retention_ms="-2",
    )
    more = values(500, len(RECORDS))
    produce(broker, "keep", more)
    assert len(broker.local_segments("keep")) > 2
    assert read_all(broker, "keep") == as_read(RECORDS + more)
    assert broker.remote_segments("keep") == before
    # Total retention continues, and takes from the remote end first.
    alter(broker, TOPIC, "keep", retention_bytes=str(3 << 20))
    until(lambda: len(broker.remote_segments("keep")) < len(before), "the oldest ones are gone")
    first = until(lambda: end_offsets(broker, "keep")[0], "the log start has moved")
    assert read_all(broker, "keep", start=end_offsets(broker, "keep")[0])[-1][0] == 1_499
    assert first > 0
    agreed(broker)


def test_a_topic_no_longer_copied_keeps_only_its_retention_if_all_is_local(
    broker: BrokerProcess,
) -> None:
    tiered(broker, "aging")
    alter(
        broker,
        TOPIC,
        "aging",
        remote_log_copy_disable="true",
        local_retention_bytes="-2",
        local_retention_ms="-2",
    )
    more = values(1_000, len(RECORDS))
    produce(broker, "aging", more)
    kept_bytes = 2 << 20
    alter(broker, TOPIC, "aging", retention_bytes=str(kept_bytes))
    until(lambda: broker.remote_segments("aging") == [], "first the remote part goes")
    until(lambda: len(broker.local_segments("aging")) <= 4, "then the oldest of the local one")
    start = end_offsets(broker, "aging")[0]
    assert broker.local_segments("aging")[0] == start > len(RECORDS)
    left = as_read(RECORDS + more)[start:]
    assert read_all(broker, "aging", start=start) == left
    assert sum(len(value) for _, _, value in left) >= kept_bytes
    agreed(broker)


def test_the_end_of_an_idle_topic_is_copied_when_its_time_is_up(broker: BrokerProcess) -> None:
    create(broker, "idle", remote_storage_enable="true", segment_ms="1000")
    produce(broker, "idle", RECORDS[:3])
    until(lambda: broker.remote_segments("idle") == [0], "though nobody produces any more")
    assert read_all(broker, "idle") == as_read(RECORDS[:3])


def test_dropping_what_is_remote_ends_with_the_local_log(broker: BrokerProcess) -> None:
    tiered(broker, "drop")
    local_start = broker.local_segments("drop")[0]
    alter(
        broker,
        TOPIC,
        "drop",
        remote_storage_enable="false",
        remote_log_delete_on_disable="true",
        local_retention_bytes="-2",
    )
    until(lambda: end_offsets(broker, "drop")[0] == local_start, "the log begins where it is local")
    until(lambda: broker.remote_segments("drop") == [], "nothing of it is remote")
    assert read_all(broker, "drop") == as_read(RECORDS)[local_start:]
    agreed(broker)


def test_records_deleted_beyond_the_local_start_leave_no_tier_behind(broker: BrokerProcess) -> None:
    tiered(broker, "cut")
    local_start = broker.local_segments("cut")[0]
    assert delete_records(broker, "cut", local_start + 10) == local_start + 10
    until(lambda: broker.remote_segments("cut") == [], "all remote segments lay below")
    assert end_offsets(broker, "cut") == (local_start + 10, 1_000)
    more = values(500, len(RECORDS))
    produce(broker, "cut", more)
    tiered_away(broker, "cut")
    assert read_all(broker, "cut") == as_read(RECORDS + more)[local_start + 10 :]
    assert delete_records(broker, "cut", -1) == 1_500
    until(lambda: broker.remote_segments("cut") == [], "everything was deleted")
    agreed(broker)


def test_a_topic_deleted_and_made_again_at_once_ends_with_its_own_segments(
    broker: BrokerProcess,
) -> None:
    tiered(broker, "again")
    for life in range(2):
        delete_topic(broker, "again")
        create(broker, "again", remote_storage_enable="true", local_retention_bytes="1")
        produce(broker, "again", values(700, life))
    tiered_away(broker, "again")
    assert read_all(broker, "again") == as_read(values(700, 1))
    lives = broker.remote_paths
    until(
        lambda: len({path.parent.parent for path in lives("**/again-*/0/*.log")}) == 1,
        "the former lives are gone from the store",
    )
    agreed(broker)


def test_total_retention_by_size_counts_what_is_in_both_tiers_once(broker: BrokerProcess) -> None:
    # All local segments stay, and all closed ones are copied: each of those is there twice.
    create(broker, "size", remote_storage_enable="true", segment_bytes=str(1 << 20))
    produce(broker, "size", RECORDS)
    closed = len(broker.local_segments("size")) - 1
    until(lambda: len(broker.remote_segments("size")) == closed, "all closed segments are copied")
    sizes = {
        int(path.stem): path.stat().st_size
        for path in broker.partition_directory("size").glob("*.log")
    }
    total, second = sum(sizes.values()), sorted(sizes)[1]
    alter(broker, TOPIC, "size", retention_bytes=str(total - sizes[0] + 1))
    passes_more(broker, "size")
    assert end_offsets(broker, "size")[0] == 0, "without its oldest segment it would be too small"
    alter(broker, TOPIC, "size", retention_bytes=str(total - sizes[0]))
    until(lambda: end_offsets(broker, "size")[0] > 0, "the oldest segment goes")
    passes_more(broker, "size")
    assert end_offsets(broker, "size")[0] == second
    until(lambda: broker.remote_segments("size")[0] == second, "also from the store")
    assert read_all(broker, "size") == as_read(RECORDS)[second:]
    agreed(broker)


def test_total_retention_by_time_ends_both_tiers(broker: BrokerProcess) -> None:
    tiered(broker, "time")
    alter(broker, TOPIC, "time", retention_ms="1000", local_retention_ms="1000")
    until(lambda: end_offsets(broker, "time") == (1_000, 1_000), "all records are too old")
    until(lambda: broker.remote_segments("time") == [], "and gone from the store")
    produce(broker, "time", [(b"new", b"one")])
    assert [key for _, key, _ in read_all(broker, "time")] in ([b"new"], [])
    agreed(broker)
