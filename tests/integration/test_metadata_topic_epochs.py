"""The reader of the metadata topic reads on when leader epochs rise in several partitions."""

from collections.abc import Callable

import pytest

from rlmm.store import START
from rlmm.topic_based import confluent_port
from rlmm.topic_based.confluent_port import ConfluentPort
from rlmm.topic_based.settings import parse
from rlmm.topic_based.topic_port import TopicRecord
from tests.support.brokers.clients import produce
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import create

pytestmark = pytest.mark.smoke

TOPIC = "written-by-clients"  # only the tier writes to its own topic
PARTITIONS = 8


def test_all_partitions_may_get_a_new_leader_epoch_at_once(
    make_broker: Callable[..., BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confluent_port, "REMOTE_LOG_METADATA_TOPIC", TOPIC)
    broker = make_broker().start()
    create(broker, TOPIC, PARTITIONS)
    for life in range(3):
        if life:
            assert broker.terminate() == 0
            broker.start()
        for number in range(PARTITIONS):
            produce(broker, TOPIC, [(None, b"%d" % life)], partition=number)
    configs = {"node.id": "1", "cluster.id": "c", "log.dir": "/nowhere"}
    port = ConfluentPort(parse({**configs, "bootstrap.servers": broker.bootstrap}))
    try:
        port.assign(dict.fromkeys(range(PARTITIONS), START))
        read: list[TopicRecord] = []

        def read_all() -> bool:
            read.extend(each for each in port.poll(100) if isinstance(each, TopicRecord))
            return len(read) >= 3 * PARTITIONS

        until(read_all, "all records are read", deadline_s=20)
    finally:
        port.close()
    for number in range(PARTITIONS):
        of_one = [each for each in read if each.partition == number]
        assert [each.value for each in of_one] == [b"0", b"1", b"2"]
        assert len({each.leader_epoch for each in of_one}) == 3


def test_the_end_is_told_again_after_the_leader_epoch_rose(
    make_broker: Callable[..., BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a broker that fences shows what librdkafka does with the epoch that it knows."""
    monkeypatch.setattr(confluent_port, "REMOTE_LOG_METADATA_TOPIC", TOPIC)
    broker = make_broker().start()
    create(broker, TOPIC, 1)
    configs = {"node.id": "1", "cluster.id": "c", "log.dir": "/nowhere"}
    port = ConfluentPort(parse({**configs, "bootstrap.servers": broker.bootstrap}))
    ends: list[int | None] = []

    def is_told(wanted: int) -> bool:
        if not ends or ends[-1] is None:
            port.ask_end(0, ends.append)
        port.poll(100)
        return bool(ends) and ends[-1] == wanted

    try:
        until(lambda: is_told(0), "the end of the empty log", deadline_s=20)
        for life in range(1, 3):
            assert broker.terminate() == 0
            broker.start()
            produce(broker, TOPIC, [(None, b"x")], partition=0)
            ends.clear()
            until(lambda life=life: is_told(life), "the end after a start", deadline_s=20)  # type: ignore[misc]
    finally:
        port.close()
