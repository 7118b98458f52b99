"""The port onto the real topic, with librdkafka itself and without a broker."""

import ctypes
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from rlmm.api import Fence
from rlmm.store import MemoryStore
from rlmm.testing import PARTITION
from rlmm.topic_based.confluent_port import ClientLog, ConfluentPort, Refusals
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager
from rlmm.topic_based.reader import sort_events
from rlmm.topic_based.settings import ManagerSettings, parse
from rlmm.topic_based.topic_port import (
    AppendFailed,
    AppendResult,
    Diverged,
    ReachedEnd,
    TopicRecord,
    Unreadable,
    damaged,
)
from tests.support.sim.clock import ManualClock
from tests.support.sim.rng import SeededRng

CONFIGS = {
    "node.id": "1",
    "cluster.id": "c",
    "log.dir": "/nowhere",
    "bootstrap.servers": "localhost:1",
    "remote.log.metadata.producer.log_level": "0",
}
OBJECT_HEAD_BYTES = 16  # of CPython; librdkafka's handle is what follows it


def fail_for_good(producer: Producer) -> None:
    """Raise a fatal error by librdkafka's own test hook."""
    mapped = Path("/proc/self/maps").read_text().splitlines()
    library = ctypes.CDLL(next(line.split()[-1] for line in mapped if "librdkafka" in line))
    handle = ctypes.c_void_p.from_address(id(producer) + OBJECT_HEAD_BYTES)
    raised = library.rd_kafka_test_fatal_error(
        handle, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"the log lost its tail"
    )
    assert raised == 0


@pytest.fixture
def port(caplog: pytest.LogCaptureFixture) -> Iterator[ConfluentPort]:
    caplog.set_level(logging.CRITICAL + 1)
    made = ConfluentPort(parse(CONFIGS))
    yield made
    made.close()


def test_settings_do_not_show_the_password() -> None:
    settings = parse(CONFIGS | {"sasl.password": "tok"})
    assert settings.security["sasl.password"] == "tok"
    assert "tok" not in repr(settings)


def test_a_producer_that_never_gets_over_its_error_is_a_failure(port: ConfluentPort) -> None:
    results: list[AppendResult] = []
    fail_for_good(port._producer)
    port.append(0, b"x", results.append)
    (result,) = results
    assert isinstance(result, AppendFailed)
    assert not result.maybe_written
    assert port.failure is not None


def test_what_was_queued_before_a_fatal_error_tells_it_too(port: ConfluentPort) -> None:
    results: list[AppendResult] = []
    port.append(0, b"x", results.append)
    assert not results
    fail_for_good(port._producer)
    for _ in range(100):
        port.poll(100)
        if results:
            break
    assert [type(result) for result in results] == [AppendFailed]
    assert port.failure is not None


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("h:1/11: SASL authentication error: invalid credentials (after 3ms in AUTH_REQ)", True),
        ("h:1/11: Unsupported SASL mechanism (after 1ms in state AUTH_HANDSHAKE)", True),
        (
            "h:1/11: SASL SCRAM-SHA-256 mechanism handshake failed: Local: Broker transport failure"
            ": broker's supported mechanisms: (n/a) (after 0ms in state DOWN)",
            False,
        ),
    ],
)
def test_a_connection_that_breaks_in_its_handshake_is_no_refusal(text: str, refused: bool) -> None:
    refusals = Refusals(ManualClock())
    refusals.note(KafkaError(KafkaError._AUTHENTICATION, text))
    assert bool(refusals.recent()) is refused
    assert " (after " not in refusals.recent(), "the text stays the same from report to report"


def test_each_broker_that_refuses_is_named_once_and_of_many_some() -> None:
    clock = ManualClock()
    refusals = Refusals(clock)

    def refuse(broker: str) -> None:
        text = f"sasl_plaintext://{broker}: SASL authentication error: invalid (after 3ms in AUTH)"
        refusals.note(KafkaError(KafkaError._AUTHENTICATION, text))

    for broker in ("h:2/bootstrap", "[::1]:9/3", "h:2/2"):
        refuse(broker)
    said = refusals.recent()
    assert [said.count(one) for one in ("h:2/2", "h:2/bootstrap", "[::1]:9/3")] == [1, 0, 1]
    clock.advance(60_000)
    refuse("h:2/2")
    assert refusals.recent() == said, "whichever was reported last"
    clock.advance(30_001)
    assert "h:2/2" in refusals.recent()
    assert "[::1]" not in refusals.recent(), "it lets them in by now, or is away"
    for number in range(12):
        refuse(f"h:{1000 + number}/{number}")
    assert refusals.recent().count("sasl_plaintext") == 10
    assert "; and 3 more. " in refusals.recent()


@pytest.mark.parametrize(
    ("level", "facility", "text", "logged"),
    [
        (logging.ERROR, "FAIL", "Connect to h failed", logging.WARNING),
        (logging.INFO, "FAIL", "Connect to h failed", logging.INFO),
        (logging.ERROR, "PROTOERR", "no answer", logging.WARNING),
    ],
)
def test_a_connection_that_fails_is_no_error_in_the_log(
    level: int, facility: str, text: str, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        ClientLog().log(level, "%s [%s] %s", facility, "rdkafka#producer-1", text)
    (line,) = caplog.records
    said = f"{facility} [rdkafka#producer-1] {text}"
    assert (line.levelno, line.getMessage()) == (logged, said)


def test_a_refusal_is_an_error_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    text = "SASL authentication error: wrong"
    for _ in range(2):
        ClientLog().log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", text)
    (line,) = caplog.records
    assert line.levelno == logging.ERROR
    assert f"client=rdkafka#producer-1 {text}. " in line.getMessage()


def test_the_clients_of_the_topic_log_that_way(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing listens there; librdkafka itself makes the line."""
    made = ConfluentPort(parse({key: CONFIGS[key] for key in CONFIGS if "log_level" not in key}))
    while not caplog.records:
        made.poll(100)
    made.close()
    assert {line.levelno for line in caplog.records} == {logging.WARNING}
    assert "FAIL [" in caplog.text


def test_a_broker_that_is_away_is_none(port: ConfluentPort) -> None:
    results: list[AppendResult] = []
    port.append(0, b"x", results.append)
    port._producer.purge()
    port.poll(100)
    assert [type(result) for result in results] == [AppendFailed]
    assert port.failure is None


def test_a_record_refused_by_the_full_producer_queue_is_not_written(
    port: ConfluentPort,
) -> None:
    results: list[AppendResult] = []
    sent = 0
    while not results:
        port.append(0, bytes(100_000), results.append)
        sent += 1
        assert sent < 100, "the queue has no bound"
    (result,) = results
    assert isinstance(result, AppendFailed)
    assert not result.maybe_written
    assert "ueue full" in result.reason
    assert port.failure is None


def test_the_manager_ends_with_its_producer_so_that_the_tier_starts_anew(
    port: ConfluentPort,
) -> None:
    class Found(ConfluentPort):
        def connect(self) -> int:
            return 1  # as long as the producer was well

    made: list[Found] = []

    def make(settings: ManagerSettings) -> Found:
        made.append(Found(settings))
        return made[-1]

    manager = TopicBasedRemoteLogMetadataManager(
        port_factory=make,
        store_factory=lambda settings, count: MemoryStore(),
        clock=ManualClock(),
        rng=SeededRng(1),
        threaded=False,
    )
    manager.configure(CONFIGS)
    manager.turn()
    owned = manager.own(PARTITION, Fence(1, 1))
    fail_for_good(made[0]._producer)
    made[0].append(0, b"x", lambda result: None)
    manager.turn()
    assert manager.failure() is not None
    assert "producer" in (manager.failure() or "")
    assert owned.exception(0) is not None
    manager.close()


UNREADABLE = Unreadable(0, damaged(0, 5))
RECORD, OTHERS_RECORD = TopicRecord(0, 5, 1, b"a"), TopicRecord(1, 5, 1, b"b")
DIVERGED = Diverged(0, "cut back")


def test_the_reading_ends_behind_what_was_read_before_the_damage() -> None:
    found = sort_events([RECORD, UNREADABLE, OTHERS_RECORD])
    assert found.stretches == {0: [RECORD], 1: [OTHERS_RECORD]}
    assert found.unreadable == {0: UNREADABLE}


def test_another_event_of_the_partition_says_that_it_can_be_read_again() -> None:
    for event in (RECORD, ReachedEnd(0, 5), DIVERGED):
        assert sort_events([UNREADABLE, event]).unreadable == {}
    assert sort_events([UNREADABLE, OTHERS_RECORD]).unreadable == {0: UNREADABLE}


def test_what_was_read_before_the_partition_diverged_counts_no_more() -> None:
    found = sort_events([RECORD, OTHERS_RECORD, DIVERGED])
    assert found.diverged == [DIVERGED]
    assert found.stretches == {1: [OTHERS_RECORD]}
    assert sort_events([DIVERGED, RECORD]).stretches == {0: [RECORD]}
