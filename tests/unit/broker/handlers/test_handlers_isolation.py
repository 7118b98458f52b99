"""Which records a client sees of a transaction that is open, by its isolation level."""

import pytest

from broker.handlers.list_offsets import LATEST, ListOffsetsHandler
from kafka_protocol.types import TopicPartition
from tests.support.worlds.data_plane import NOW_MS, World, batch, call, values_of
from tests.support.worlds.fetch import ask, make, parts
from tests.support.worlds.remote_log import impatient

UNCOMMITTED, COMMITTED = 0, 1


@pytest.fixture
def with_open_transaction(world: World) -> World:
    """Offset 0 belongs to no transaction, offset 1 to one that is open."""
    world.add_topic("t")
    world.append("t", b"plain")
    world.replicas.partitions[TopicPartition("t", 0)].append(
        batch(b"open", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True),
        now_ms=NOW_MS,
    )
    return world


@pytest.mark.parametrize(
    ("level", "values", "aborted"),
    [
        (UNCOMMITTED, [b"plain", b"open"], None),
        (COMMITTED, [b"plain"], []),
        (2, [b"plain", b"open"], None),
        (-1, [b"plain", b"open"], None),
    ],
)
def test_a_fetch_sends_committed_records_only_where_they_are_asked_for(
    with_open_transaction: World, level: int, values: list[bytes], aborted: list[object] | None
) -> None:
    world = with_open_transaction
    fields = ask(world, 12, ("t", [{}]), isolation_level=level)
    (answer,) = parts(call(make(world), 12, fields))
    assert values_of(answer.records) == values
    assert answer.aborted_transactions == aborted
    assert (answer.high_watermark, answer.last_stable_offset) == (2, 1)


@pytest.mark.parametrize(("level", "offset"), [(UNCOMMITTED, 2), (COMMITTED, 1), (2, 2), (-1, 2)])
def test_with_read_committed_the_latest_offset_is_the_last_stable_one(
    with_open_transaction: World, level: int, offset: int
) -> None:
    world = with_open_transaction
    handler = ListOffsetsHandler(
        world.replicas, clock=world.clock, pool=world.pool, holding=impatient(world)
    )
    partition = {"partition_index": 0, "timestamp": LATEST}
    fields = {
        "replica_id": -1,
        "isolation_level": level,
        "topics": [{"name": "t", "partitions": [partition]}],
    }
    assert call(handler, 11, fields).topics[0].partitions[0].offset == offset
