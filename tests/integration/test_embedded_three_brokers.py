"""`tidemark.Broker(brokers=3)`: nodes of a test suite that are lost one at a time, in any state.

Only real processes show that one node is lost alone, and that none is left in the end.
"""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic

import tidemark
from tests.support.brokers.embedded import assert_nothing_left, facts_in, is_running, put, told
from tests.support.brokers.process import until

pytestmark = pytest.mark.lasts(seconds=60)

IDS = [11, 12, 13]
PATIENCE_S = 60


@pytest.fixture(scope="module")
def nodes() -> Iterator[tidemark.Broker]:
    with tidemark.Broker(brokers=3, topics=["kept"]) as started:
        yield started


@pytest.fixture
def cluster(nodes: tidemark.Broker) -> tidemark.Broker:
    nodes.restore()
    return nodes


def leader_of(client: Producer, topic: str) -> int:
    return int(client.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions[0].leader)


def in_sync(broker: tidemark.Broker, topic: str) -> set[int]:
    found = broker.admin().list_topics(topic, timeout=PATIENCE_S).topics[topic]
    return set(found.partitions[0].isrs)


def read(broker: tidemark.Broker, topic: str, count: int) -> list[bytes]:
    consumer = broker.consumer(isolation_level="read_uncommitted")
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() for message in consumer.consume(count, PATIENCE_S)]
    consumer.close()
    return found


@pytest.mark.smoke
def test_topics_have_three_copies_of_which_acks_all_needs_two(cluster: tidemark.Broker) -> None:
    assert list(cluster.broker_pids) == IDS
    assert list(cluster.controller_pids) == [1]
    consumer = cluster.consumer(group_id="any")
    consumer.subscribe(["kept"])
    consumer.poll(1)
    consumer.close()
    topics = cluster.admin().list_topics(timeout=PATIENCE_S).topics
    for name in ("kept", "__consumer_offsets"):
        assert sorted(topics[name].partitions[0].replicas) == IDS
    admin, resource = cluster.admin(), ConfigResource(ConfigResource.Type.TOPIC, "kept")
    described = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert described["min.insync.replicas"].value == "2"


def local_segments(broker: tidemark.Broker, topic: str) -> list[int]:
    """How many segments of the only partition each broker has."""
    places = [path.parent for path in broker.data_dir.glob(f"broker*/logs/{topic}-0/*.log")]
    return sorted(Counter(places).values())


def test_a_tiered_topic_has_three_copies_and_one_store(cluster: tidemark.Broker) -> None:
    """Else the brokers have a store each, and the next leader does not find what is copied."""
    config = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
    tiered = NewTopic("tides", 1, 3, config=config | {"segment.bytes": "1048576"})
    admin = cluster.admin()  # it must outlive its request
    admin.create_topics([tiered])["tides"].result(PATIENCE_S)
    values = [b"%d " % number * 5_000 for number in range(200)]
    put(cluster, "tides", values)
    until(lambda: local_segments(cluster, "tides") == [1, 1, 1], "only what is active is local")
    cluster.kill(leader_of(cluster.producer(), "tides"))
    assert read(cluster, "tides", len(values)) == values
    (store,) = (path for path in cluster.data_dir.glob("**/remote-tier") if path.is_dir())
    assert store.parent == cluster.data_dir


@pytest.mark.parametrize("deed", ["kill", "stop", "pause", "isolate"])
def test_a_leader_is_lost_and_no_record_with_it(cluster: tidemark.Broker, deed: str) -> None:
    producer = cluster.producer(
        acks="all", enable_idempotence=True, request_timeout_ms=5_000, socket_timeout_ms=10_000
    )
    before = len(read_all(cluster))
    lost = leader_of(producer, "kept")
    for number in range(100):
        producer.produce("kept", b"%s %d" % (deed.encode(), number))
        if number == 50:
            getattr(cluster, deed)(lost)
    assert producer.flush(PATIENCE_S) == 0
    others = [pid for node_id, pid in cluster.broker_pids.items() if node_id != lost]
    assert len(others) == 2
    assert all(map(is_running, others))
    cluster.restore()
    until(lambda: in_sync(cluster, "kept") == set(IDS), "all copies are in sync again")
    assert read_all(cluster)[before:] == [b"%s %d" % (deed.encode(), one) for one in range(100)]


def read_all(broker: tidemark.Broker) -> list[bytes]:
    consumer = broker.consumer()
    _, end = consumer.get_watermark_offsets(TopicPartition("kept", 0), timeout=PATIENCE_S)
    consumer.close()
    return read(broker, "kept", end) if end else []


def test_a_leader_that_only_clients_reach_acknowledges_what_is_lost(
    cluster: tidemark.Broker,
) -> None:
    before = read_all(cluster)
    producer = cluster.producer(acks="1", message_timeout_ms=10_000)
    lost = leader_of(producer, "kept")
    cluster.isolate(lost, clients=False)
    producer.produce("kept", b"lost")
    assert producer.flush(PATIENCE_S) == 0, "clients reach it"
    others = [one for one in IDS if one != lost]
    until(lambda: all(leads_elsewhere(cluster, one, lost) for one in others), "another one leads")
    cluster.heal(lost)
    cluster.restore()
    until(lambda: in_sync(cluster, "kept") == set(IDS), "all copies are in sync again")
    assert read_all(cluster) == before


def test_kafka_python_moves_a_partition(cluster: tidemark.Broker) -> None:
    """It is the client in Python that asks for reassignments, and reads their answers its way."""
    maker = cluster.admin()  # it must outlive its request
    maker.create_topics([NewTopic("moved", 1, 1)])["moved"].result(PATIENCE_S)
    values = [b"%d" % number for number in range(50)]
    put(cluster, "moved", values)
    one, none_such = kafka.TopicPartition("moved", 0), kafka.TopicPartition("moved", 9)
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        (before,) = in_sync(cluster, "moved")
        others = [number for number in IDS if number != before]
        answers = admin.alter_partition_reassignments({one: others, none_such: others})
        assert {key: answer and answer.errno for key, answer in answers.items()} == {
            one: None,
            none_such: 3,
        }
        until(lambda: not admin.list_partition_reassignments(), "the move is over")
        assert in_sync(cluster, "moved") == set(others)
        (refused,) = admin.alter_partition_reassignments({one: None}).values()
        assert refused.errno == 85  # NO_REASSIGNMENT_IN_PROGRESS
    finally:
        admin.close()
    assert read(cluster, "moved", len(values)) == values


def leads_elsewhere(broker: tidemark.Broker, asked: int, lost: int) -> bool:
    address = broker.bootstrap_servers.split(",")[asked - IDS[0]]
    admin = broker.admin(**{"bootstrap.servers": address})
    return leader_of(admin, "kept") != lost  # type: ignore[arg-type]  # they share the method


def test_each_state_ends_in_each_way(cluster: tidemark.Broker) -> None:
    cluster.pause(11)
    cluster.stop(11)
    cluster.kill(11)  # nothing is there to be killed
    assert list(cluster.broker_pids) == [12, 13]
    for refused in (cluster.pause, cluster.isolate, cluster.heal, cluster.status):
        with pytest.raises(tidemark.BrokerError, match="node 11 does not run"):
            refused(11)
    cluster.restart(11)
    before = cluster.broker_pids[11]
    cluster.restart(11)  # one that runs
    assert cluster.broker_pids[11] != before
    cluster.isolate(11)
    cluster.isolate(11, clients=False)
    cluster.stop(11)
    cluster.restart(11)
    cluster.isolate(12)
    cluster.pause(12)
    with pytest.raises(tidemark.BrokerError, match="node 12 is paused"):
        cluster.heal(12)
    cluster.kill(12)
    assert cluster.start(12).status(12)["stage"] == "running"
    cluster.heal(12)  # one that is not cut off


def test_what_there_is_not_is_named(cluster: tidemark.Broker) -> None:
    with pytest.raises(tidemark.BrokerError, match="no node 14; there are: 1, 11, 12, 13"):
        cluster.kill(14)
    with pytest.raises(tidemark.BrokerError, match="node 1 is a controller; the brokers are: 11"):
        cluster.isolate(1)
    for ask in (cluster.status, lambda: cluster.faults, lambda: cluster.tier("kept")):
        with pytest.raises(tidemark.BrokerError, match="of which broker"):
            ask()
    with pytest.raises(ValueError, match="brokers=6: must be 1 to 5"):
        tidemark.Broker(brokers=6)
    settings = {"log.dirs": "one"}
    with pytest.raises(tidemark.BrokerStartError, match=r"log\.dirs=.*each of several has its own"):
        tidemark.Broker(brokers=3, settings=settings).start()
    with (
        tidemark.Broker(settings={"remote.log.storage.system.enable": False}) as alone,
        pytest.raises(tidemark.BrokerError, match=r"inter\.broker\.listener\.name"),
    ):
        alone.isolate(clients=False)


def test_faults_hit_clients_of_their_broker_and_no_replica(cluster: tidemark.Broker) -> None:
    producer = cluster.producer(acks="all")
    leader = leader_of(producer, "kept")
    with cluster.faults_on(leader).add(api="Fetch", error="NOT_LEADER_OR_FOLLOWER") as fault:
        put(cluster, "kept", [b"copied"])
        assert fault.hits == 0


def test_a_node_that_dies_in_its_start_is_named_and_the_others_continue(
    cluster: tidemark.Broker,
) -> None:
    cluster.stop(13)
    said: list[tidemark.BrokerError] = []

    def start() -> None:
        try:
            cluster.start(13)
        except tidemark.BrokerError as error:
            said.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    os.kill(until(lambda: cluster.broker_pids.get(13), "it starts"), signal.SIGKILL)
    cluster.kill(13)  # waits until the start has failed
    starting.join()
    assert "broker 13 ended at its start" in str(said[0])
    assert list(cluster.broker_pids) == [11, 12]
    put(cluster, "kept", [b"meanwhile"])
    cluster.start()
    assert list(cluster.broker_pids) == IDS


@pytest.mark.parametrize("keeps", [False, True])
def test_what_is_paused_or_cut_off_ends_with_the_cluster(tmp_path: Path, *, keeps: bool) -> None:
    cluster = tidemark.Broker(tmp_path / "data" if keeps else None, brokers=3).start()
    told(cluster, tmp_path / "facts")
    cluster.pause(11)
    cluster.isolate(12)
    cluster.close()
    facts = facts_in(tmp_path / "facts")
    assert (tmp_path / "data").exists() == keeps
    if keeps:
        facts["directory"] = str(tmp_path / "nowhere")
        assert "stopped: node_id=12" in (tmp_path / "data" / "broker-12.log").read_text()
    assert_nothing_left(facts)


async def test_the_async_twin_loses_nodes_as_well(cluster: tidemark.Broker) -> None:
    twin = tidemark.AsyncBroker(brokers=3)
    twin._broker = cluster
    await twin.isolate(11)
    await twin.kill(12)
    await twin.pause(13)
    await twin.restore()
    assert (await twin.status(12))["stage"] == "running"
    await twin.heal(11)
    await twin.restart(13)
    await twin.stop(13)
    await twin.start(13)
    assert list(twin.broker_pids) == IDS
    assert await twin.faults_on(13).list() == []
