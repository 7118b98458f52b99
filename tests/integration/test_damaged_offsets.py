"""The log of consumer groups is damaged while the broker is down: groups continue with the rest."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_protocol.wire.api_keys import ApiKey
from local_log.segment.segment import LogSegment
from runtime.disk import Disk
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.raw_client import RawClient, create_topic

GROUPS = 40
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(1 << 20),
}


FILLING = 240
"""Commits with as much metadata as may be: nearly a segment."""


def commit(
    client: RawClient, group: str, offset: int, partitions: int = 1, metadata: str = ""
) -> int:
    committed = [
        {
            "partition_index": number,
            "committed_offset": offset,
            "committed_metadata": metadata,
        }
        for number in range(partitions)
    ]
    topics = [{"name": "t", "partitions": committed}]
    answer = client.ask(ApiKey.OFFSET_COMMIT, 8, {"group_id": group, "topics": topics})
    return int(answer.topics[0].partitions[0].error_code)


def committed(client: RawClient, group: str) -> tuple[int, int]:
    topics = [{"name": "t", "partition_indexes": [0]}]
    answer = client.ask(ApiKey.OFFSET_FETCH, 6, {"group_id": group, "topics": topics})
    return answer.error_code, answer.topics[0].partitions[0].committed_offset


def put(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def places(path: Path) -> list[int]:
    segment = LogSegment(Disk(), path.parent, int(path.stem), path.stat().st_size)
    return [at for at, _ in segment.batches(0)]


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_groups_continue_with_what_can_be_read(
    make_broker: Callable[..., BrokerProcess], ends: str
) -> None:
    broker = make_broker(settings=SETTINGS).start()
    names = [f"group-{number}" for number in range(GROUPS)]
    with RawClient(broker) as client:
        create_topic(client, "t", FILLING)
        until(
            lambda: not client.ask(ApiKey.FIND_COORDINATOR, 1, {"key": "g"}).error_code,
            "there is a coordinator",
        )
        for number, name in enumerate(names):
            until(lambda n=number, g=name: commit(client, g, 100 + n) == 0, "it is committed")
            if number % 8 == 7 and number < GROUPS - 1:
                assert commit(client, "filling", number, FILLING, "m" * 4_000) == 0
    if ends == "killed":
        broker.kill()
    else:
        assert broker.terminate() == 0
    directory = broker.partition_directory("__consumer_offsets")
    files = sorted(directory.glob("*.log"))
    assert len(files) > 3
    # The first batch of a closed segment has another magic, the last of another one a length beyond
    # its file, in the last segment a base offset goes back, and an index is garbage.
    first, second, last = files[0], files[1], files[-1]
    put(first, places(first)[0] + 16, b"\7")
    put(second, places(second)[-1] + 8, b"\x7f\xff\xff\xff")
    put(last, places(last)[-1], bytes(8))
    files[2].with_suffix(".index").write_bytes(b"\7" * 32)

    broker.start()
    with RawClient(broker) as client:
        found = {}
        for name in names:
            until(lambda g=name: committed(client, g)[0] == 0, "the groups are loaded")
            found[name] = committed(client, name)[1]
        lost = [name for number, name in enumerate(names) if found[name] != 100 + number]
        assert len(lost) == 2
        assert {found[name] for name in lost} == {-1}
        for name in lost:
            assert commit(client, name, 7) == 0
    # Each damage is named, counted, and yellow.
    health = broker.health()
    assert health["parts"]["groups-data"] == "yellow"
    assert broker.metric("tidemark_group_damaged_records_total") == 3
    text = broker.log_text()
    assert all(f"file={directory / path.name} position=" in text for path in (first, second, last))
    assert len(list(directory.glob("*.cut"))) == 3

    broker.kill()
    broker.start()  # nothing is damaged any more, and nothing is lost
    with RawClient(broker) as client:
        until(lambda: committed(client, names[0])[0] == 0, "the groups are loaded")
        again = {name: committed(client, name)[1] for name in names}
    assert again == found | dict.fromkeys(lost, 7)
    assert broker.metric("tidemark_group_damaged_records_total") == 0
