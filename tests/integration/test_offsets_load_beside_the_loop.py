"""Committed offsets are loaded beside the event loop: other groups are served meanwhile."""

import re
from collections.abc import Callable

import pytest

from broker.coordinator.group.records import CommittedOffset, offset_key, offset_value
from broker.coordinator.service import partition_of
from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.records import build_batch
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.raw_client import RawClient

PARTITIONS = 50
FULL = 7
"""The partition of `__consumer_offsets` that is filled."""
NOW_MS = 1_795_000_000_000
SMALL = 20_000
MILLION = 1_000_000


def group_in(partition: int) -> str:
    names = (f"group-{number}" for number in range(10_000))
    return next(name for name in names if partition_of(name, PARTITIONS) == partition)


def fill(broker: BrokerProcess, count: int) -> None:
    """Append commits of 100 groups to the log of a broker that was killed."""
    names = (f"group-{number}" for number in range(100_000))
    groups = [name for name in names if partition_of(name, PARTITIONS) == FULL][:100]
    file = broker.partition_directory("__consumer_offsets", FULL) / f"{0:020d}.log"
    assert file.stat().st_size == 0
    with file.open("ab") as log:
        for first in range(0, count, 100):
            records = []
            for number in range(first, first + 100):
                group = groups[number // (count // len(groups))]
                place, partition = divmod(number % (count // len(groups)), 100)
                key = offset_key(group, f"topic-{place}", partition)
                value = offset_value(CommittedOffset(number, -1, "", NOW_MS))
                records.append((NOW_MS, key, value, ()))
            log.write(build_batch(records, base_offset=first, leader_epoch=0))


def fetched(client: RawClient, group: str) -> int:
    """The error of a group's offsets."""
    answer = client.ask(ApiKey.OFFSET_FETCH, 7, {"group_id": group, "topics": []})
    return int(answer.error_code)


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(SMALL, id="small"),
        pytest.param(MILLION, id="million", marks=pytest.mark.long(seconds=60)),
    ],
)
def test_other_groups_are_served_while_one_partition_is_loaded(
    make_broker: Callable[..., BrokerProcess], count: int
) -> None:
    broker = make_broker(settings={"offsets.retention.minutes": "5256000"}).start()
    with RawClient(broker) as client:
        until(
            lambda: not client.ask(ApiKey.FIND_COORDINATOR, 1, {"key": "g"}).error_code,
            "there is a coordinator",
        )
    broker.kill()
    fill(broker, count)
    broker.start()
    seen = set()
    with RawClient(broker) as client:

        def is_loaded() -> bool:
            assert fetched(client, group_in(FULL + 1)) == 0  # another partition
            seen.add(fetched(client, group_in(FULL)))
            return 0 in seen

        until(is_loaded, "the offsets are loaded", deadline_s=60)
        assert seen <= {0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        topics = [{"name": "topic-0", "partition_indexes": [0, 99]}]
        fields = {"group_id": group_in(FULL), "topics": topics}
        [topic] = client.ask(ApiKey.OFFSET_FETCH, 7, fields).topics
        assert [one.committed_offset for one in topic.partitions] == [0, 99]
    metric = "kafka_coordinator_group_GroupMetadataManager_NumOffsets"
    until(lambda: broker.metric(metric) == count, "all offsets are counted")
    assert not re.search(r"event loop was held.*coordinator", broker.log_text())
