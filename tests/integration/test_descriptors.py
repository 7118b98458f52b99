"""A broker that is asked for more descriptors than there are: it refuses, and lives."""

import socket
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaException, Producer

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import create

OPEN_FILES = 260
PARTITIONS = 40
"""Their files need more than the reserve."""


class SmallBroker(BrokerProcess):
    """Starts as others do, but may open few files."""

    def start_command(self) -> list[str]:
        # Of the child alone; the broker raises its soft limit to the hard one.
        limited = f'ulimit -n {OPEN_FILES}; exec "$@"'
        return ["sh", "-c", limited, "sh", *super().start_command()]


def connect(broker: BrokerProcess) -> socket.socket | None:
    """A connection that says nothing; None where it was not taken."""
    try:
        return socket.create_connection(("127.0.0.1", broker.port), 5)
    except OSError:
        return None


def holds(broker: BrokerProcess, topic: str, count: int) -> bool:
    """Whether so many records can be read; a new client may be turned away for a moment."""
    try:
        return len(read_all(broker, topic)) == count
    except KafkaException:
        return False


def makes(broker: BrokerProcess, topic: str) -> bool:
    """Whether a topic is made, not refused so that the reserve is kept."""
    try:
        create(broker, topic)
    except KafkaException as error:
        if "ulimit -n" in str(error):
            return False
        raise
    return True


def healthy(broker: BrokerProcess) -> bool:
    return broker.health()["status"] == "green"


def test_silent_connections_do_not_take_the_descriptors_of_files(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    made = make_broker()
    broker = SmallBroker(made.directory)
    broker.settings = {"max.connections.per.ip": "100000"}
    try:
        broker.start()
        create(broker, "orders", **{"segment.bytes": "1048576"})
        failures: list[object] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})

        def send(count: int) -> None:
            for number in range(count):
                producer.produce(
                    "orders",
                    b"%d" % number + bytes(100_000),
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
            assert producer.flush(30) == 0
            assert not failures

        send(10)
        silent = [connect(broker) for _ in range(3 * OPEN_FILES)]
        name = "tidemark_connections_refused_descriptors_total"
        until(lambda: "ulimit -n" in broker.log_text(), "the refusal is said")
        send(80)  # many rolls: each opens files
        assert healthy(broker)
        assert len(broker.local_segments("orders")) > 5
        for each in silent:
            if each is not None:
                each.close()
        until(broker.answers, "new connections work again")
        assert broker.metric(name) > 0
        produce(broker, "orders", [(None, b"last")])
        until(partial(holds, broker, "orders", 91), "all is read")
        assert healthy(broker)
        assert broker.log_text().count("connections are refused") <= 2, "once a minute"
        assert broker.terminate() == 0
    finally:
        broker.close()
        print(broker.log_tail(100))


def test_idle_connections_give_their_descriptors_to_files(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    made = make_broker()
    broker = SmallBroker(made.directory)
    broker.settings = {"max.connections.per.ip": "100000"}
    try:
        broker.start()
        silent = [connect(broker) for _ in range(OPEN_FILES)]
        until(lambda: "ulimit -n" in broker.log_text(), "no more are taken")
        for number in range(PARTITIONS):
            until(partial(makes, broker, f"orders-{number}"), "idle connections give way to it")
            produce(broker, f"orders-{number}", [(None, b"%d" % number)])
        assert healthy(broker)
        assert broker.metric("tidemark_connections_closed_descriptors_total") > 0
        assert "idle connections are closed" in broker.log_text()
        for number in range(PARTITIONS):
            until(partial(holds, broker, f"orders-{number}", 1), f"orders-{number} is read")
        for each in silent:
            if each is not None:
                each.close()
        assert broker.terminate() == 0
    finally:
        broker.close()
        print(broker.log_tail(100))
