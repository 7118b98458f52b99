"""One Fetch over partitions in both tiers: byte limits, at least one batch, waits."""

from collections.abc import Sequence

import pytest

from kafka_protocol.records.batch import iter_batches
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.clients import produce
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.raw_client import Asked, RawClient, asked_topics
from tests.support.brokers.tiered_topics import TIERED, create, tiered_away

VERSION = 12
SMALL, LARGE = "small-batches", "large-batches"
LARGE_BATCH_BYTES_MIN = 200_000


def fetch(
    broker: BrokerProcess,
    asked: Sequence[Asked],
    max_bytes: int,
    *,
    max_wait_ms: int = 5_000,
    min_bytes: int = 1,
) -> list[bytes]:
    """Records of each asked partition, in their order."""
    fields = {
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "topics": asked_topics(asked),
    }
    with RawClient(broker) as client:
        answer = client.ask(ApiKey.FETCH, VERSION, fields)
    found = [partition for topic in answer.responses for partition in topic.partitions]
    assert [each.error_code for each in found] == [0] * len(asked)
    assert [each.partition_index for each in found] == [one.partition for one in asked]
    return [bytes(each.records or b"") for each in found]


def offsets(records: bytes) -> list[int]:
    return [header.base_offset for _, header in iter_batches(records)]


def fill(broker: BrokerProcess, topic: str) -> None:
    """Four partitions: even ones end up in the remote tier, odd ones are too short to leave."""
    create(broker, topic, 4, **TIERED)
    size, batch_bytes = (4_500, 20_000) if topic == SMALL else (LARGE_BATCH_BYTES_MIN, 1)
    for partition in range(4):
        count = (3_000_000 if partition % 2 == 0 else 800_000) // size
        records = [(b"%d" % n, (b"%09d/" % n) * (size // 10)) for n in range(count)]
        produce(broker, topic, records, partition, **{"batch.size": batch_bytes})
    for partition in (0, 2):
        tiered_away(broker, topic, partition)


@pytest.fixture(scope="module")
def mixed(shared_tiered_broker: BrokerProcess) -> BrokerProcess:
    for topic in (SMALL, LARGE):
        fill(shared_tiered_broker, topic)
    return shared_tiered_broker


def test_limits_hold_over_both_tiers(mixed: BrokerProcess) -> None:
    everything = [Asked(SMALL, partition) for partition in range(4)]
    for max_bytes in (30_000, 100_000, 700_000, 10_000_000):
        for order in (everything, everything[::-1], [everything[at] for at in (1, 2, 0, 3)]):
            for _ in range(2):  # cold, and from the cache
                found = fetch(mixed, order, max_bytes)
                assert 0 < sum(map(len, found)) <= max_bytes
                assert found[0], "the first partition is never passed over"
    limited = [Asked(SMALL, partition, max_bytes=50_000) for partition in range(4)]
    found = fetch(mixed, limited, 10_000_000)
    assert all(0 < len(each) <= 50_000 for each in found)
    assert sum(map(len, fetch(mixed, limited, 60_000))) <= 60_000

    # Whoever asks on, each time beginning with another partition, gets everything of all.
    at, rounds = [0] * 4, 0
    ends = [
        3_000_000 // 4_500 if partition % 2 == 0 else 800_000 // 4_500 for partition in range(4)
    ]
    while any(at[partition] < ends[partition] for partition in range(4)):
        order = [(rounds + partition) % 4 for partition in range(4)]
        wanted = [Asked(SMALL, p, at[p]) for p in order if at[p] < ends[p]]
        for one, records in zip(wanted, fetch(mixed, wanted, 150_000), strict=True):
            for _, header in iter_batches(records):
                assert header.base_offset <= at[one.partition] < header.next_offset
                at[one.partition] = header.next_offset
        rounds += 1
        assert rounds < 1_000


def test_one_batch_larger_than_all_limits_comes_once_in_an_answer(mixed: BrokerProcess) -> None:
    everything = [Asked(LARGE, partition, max_bytes=1_000) for partition in range(4)]
    for order in (everything, everything[::-1]):
        found = fetch(mixed, order, 1_000)
        assert offsets(found[0]) == [0]
        assert len(found[0]) > LARGE_BATCH_BYTES_MIN
        assert found[1:] == [b""] * 3
    # A partition in either tier whose records fit after that one is not owed a batch.
    found = fetch(mixed, everything, 10_000_000)
    assert [len(offsets(each)) for each in found] == [1, 0, 0, 0]


def test_an_answer_with_remote_bytes_does_not_wait_for_more(mixed: BrokerProcess) -> None:
    # Longer than the raw client's patience, were it waited for.
    patient = {"max_wait_ms": 60_000, "min_bytes": 50_000_000}
    found = fetch(mixed, [Asked(SMALL, 0), Asked(SMALL, 1)], 40_000_000, **patient)
    assert all(found)


def test_requests_and_bytes_count_what_clients_got_also_from_what_was_lent(
    mixed: BrokerProcess,
) -> None:
    prefix = "kafka_server_BrokerTopicMetrics_RemoteFetch"

    def fetched() -> float:
        return mixed.metric(
            "tidemark_remote_store_requests_total",
            store="LocalFsRemoteStorageManager",
            operation="fetch",
            topic=SMALL,
        )

    def counted() -> tuple[float, float]:
        return (
            mixed.metric(f"{prefix}RequestsPerSec_total", topic=SMALL),
            mixed.metric(f"{prefix}BytesPerSec_total", topic=SMALL),
        )

    fetch(mixed, [Asked(SMALL, 0, max_bytes=50_000)], 50_000)
    (requests_before, bytes_before), fetched_before = counted(), fetched()
    at = requests = size_bytes = 0
    while size_bytes < 1_500_000:
        (records,) = fetch(mixed, [Asked(SMALL, 0, at, 50_000)], 50_000)
        requests, size_bytes = requests + 1, size_bytes + len(records)
        *_, (_, last) = iter_batches(records)
        at = last.next_offset
    assert counted() == (requests_before + requests, bytes_before + size_bytes)
    assert fetched() - fetched_before < requests, "most fetches are served from what is here"
