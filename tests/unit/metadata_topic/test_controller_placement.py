from dataclasses import replace

from metadata_topic.controller.placement import place
from metadata_topic.image.model import BrokerImage


def broker(broker_id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerImage:
    return BrokerImage(broker_id, 0, bytes(16), rack=rack, fenced=fenced)


def test_replicas_of_a_partition_are_in_different_racks() -> None:
    brokers = [broker(n, "abc"[n % 3]) for n in range(9)]
    racks = {b.id: b.rack for b in brokers}
    for replicas in place(brokers, partitions=60, replication_factor=3, start=5):
        assert len({racks[replica] for replica in replicas}) == 3


def test_racks_share_what_does_not_go_into_them_evenly() -> None:
    brokers = [broker(1, "a"), broker(2, "a"), broker(3, "b"), broker(4, "b")]
    racks = {b.id: b.rack for b in brokers}
    for replicas in place(brokers, partitions=20, replication_factor=3, start=0):
        assert len(set(replicas)) == 3
        assert {racks[replica] for replica in replicas} == {"a", "b"}


def test_leaders_are_spread_evenly() -> None:
    placed = place([broker(n) for n in range(5)], partitions=50, replication_factor=2, start=3)
    leaders = [replicas[0] for replicas in placed]
    assert {leaders.count(n) for n in range(5)} == {10}


def test_fenced_brokers_come_last_and_never_lead() -> None:
    brokers = [broker(1, fenced=True), broker(2), broker(3)]
    for replicas in place(brokers, partitions=9, replication_factor=3, start=0):
        assert replicas[2] == 1


def test_a_broker_in_controlled_shutdown_does_not_lead() -> None:
    leaving = replace(broker(1), in_controlled_shutdown=True)
    for replicas in place([leaving, broker(2)], partitions=4, replication_factor=1, start=0):
        assert replicas == (2,)
