"""What a controllers' listener serves besides the quorum: brokers, topics and settings.

The handlers of clients' listeners take the controller's way in as it is: it has the signature of
the metadata node's.
"""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.controllers.replica_directories import FORGETS, FORGETS_LAST_COPIES
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message
from metadata_topic.controller.directories import Forgotten
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.model import (
    DIRECTORY_LOST,
    DIRECTORY_UNASSIGNED,
    ControllerImage,
    Endpoint,
)
from tests.support.kafka.broker_talk import BrokerTalk
from tests.support.worlds.admin import SET, TOPIC
from tests.support.worlds.controller_listener import BEAT_MS, SESSION_MS, Listener
from tidemark.node_files.forgetting import ForgetError, forgotten_by


@pytest.fixture
def listener(tmp_path: Path) -> Listener:
    return Listener(tmp_path)


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_a_broker_registers_beats_and_is_seen(listener: Listener, version: int) -> None:
    registered = await listener.register(version)
    assert registered.error_code == 0
    broker = listener.quorum.image.brokers[1]
    assert broker.epoch == registered.broker_epoch
    assert broker.endpoints == (Endpoint("PLAINTEXT", "h", 9092),)
    assert broker.features == SUPPORTED_FEATURES
    assert broker.rack == "r"
    assert broker.log_dirs == (b"d" * 16,)
    early = await listener.beat(broker.epoch, offset=0)
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    answer = await listener.beat(broker.epoch)
    assert (answer.error_code, answer.is_caught_up, answer.is_fenced) == (0, True, False)
    assert not listener.quorum.image.brokers[1].fenced


@pytest.mark.parametrize("version", [0, 1])
async def test_a_version_without_directories_is_refused_where_they_are_needed(
    listener: Listener, version: int
) -> None:
    assert (await listener.register(version)).error_code == ErrorCode.INVALID_REGISTRATION


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [ZERO_UUID]}, ErrorCode.INVALID_REGISTRATION),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
async def test_who_may_not_register_hears_why(
    listener: Listener, changes: dict[str, Any], code: ErrorCode
) -> None:
    answer = await listener.register(**changes)
    assert (answer.error_code, answer.broker_epoch) == (code, -1)
    assert not listener.quorum.image.brokers


async def test_a_second_process_of_one_id_is_refused(listener: Listener) -> None:
    first = await listener.register()
    await listener.beat(first.broker_epoch, offset=0)
    second = await listener.register(life=2)
    assert second.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert (await listener.register()).broker_epoch == first.broker_epoch


@pytest.mark.parametrize("version", [0, 1])
async def test_a_stopping_broker_is_told_when_it_may(listener: Listener, version: int) -> None:
    epoch = (await listener.register()).broker_epoch
    await listener.beat(epoch, version=version)
    answer = await listener.beat(epoch, version=version, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)


async def test_a_lost_directory_reaches_the_registration(listener: Listener) -> None:
    epoch = (await listener.register(log_dirs=[b"a" * 16, b"b" * 16])).broker_epoch
    await listener.beat(epoch)
    await listener.beat(epoch, offline_log_dirs=[b"a" * 16])
    assert listener.quorum.image.brokers[1].log_dirs == (b"b" * 16,)


async def test_a_heartbeat_of_an_older_life_is_stale(listener: Listener) -> None:
    epoch = (await listener.register()).broker_epoch
    answer = await listener.beat(epoch - 1)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert answer.is_fenced


async def test_a_heartbeat_is_answered_within_half_its_interval(listener: Listener) -> None:
    epoch = (await listener.register()).broker_epoch
    listener.quorum.commit_delay_ms = None
    began = listener.quorum.ports.clock.monotonic_ms()
    answer = await listener.beat(epoch)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert listener.quorum.ports.clock.monotonic_ms() - began <= BEAT_MS // 2 + 50


async def test_topics_are_made_altered_and_deleted_through_the_controller(
    listener: Listener,
) -> None:
    await listener.beat((await listener.register()).broker_epoch)
    cls = message("CreateTopicsRequest").cls
    asked = cls(topics=[cls.Topics(name="t", num_partitions=2, replication_factor=1)])
    (made,) = (await listener.ask(listener.create, asked)).topics
    assert (made.error_code, made.num_partitions) == (0, 2)
    (again,) = (await listener.ask(listener.create, asked)).topics
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    cls = message("IncrementalAlterConfigsRequest").cls
    change = cls.Resources.Configs(name="retention.ms", config_operation=SET, value="7")
    resource = cls.Resources(resource_type=TOPIC, resource_name="t", configs=[change])
    (altered,) = (await listener.ask(listener.alter, cls(resources=[resource]))).responses
    assert altered.error_code == 0
    assert listener.quorum.image.topic_config("t") == {"retention.ms": "7"}

    cls = message("DeleteTopicsRequest").cls
    asked = cls(topics=[cls.Topics(name="t")], timeout_ms=1_000)
    (deleted,) = (await listener.ask(listener.delete, asked)).responses
    assert deleted.error_code == 0
    assert "t" not in listener.quorum.image.topics_by_name


async def _made(listener: Listener) -> bytes:
    """A topic of two partitions on the one broker; returns its id."""
    cls = message("CreateTopicsRequest").cls
    asked = cls(topics=[cls.Topics(name="t", num_partitions=2, replication_factor=1)])
    await listener.ask(listener.create, asked)
    return listener.quorum.image.topics_by_name["t"].id


def _directories(epoch: int, topic_id: bytes, *partitions: int) -> Any:
    cls = message("AssignReplicasToDirsRequest").cls
    topic = cls.Directories.Topics
    numbers = [topic.Partitions(partition_index=one) for one in partitions]
    directory = cls.Directories(id=b"d" * 16, topics=[topic(topic_id=topic_id, partitions=numbers)])
    return cls(broker_id=1, broker_epoch=epoch, directories=[directory])


async def test_a_broker_has_the_directories_of_its_replicas_noted(listener: Listener) -> None:
    epoch = (await listener.register()).broker_epoch
    await listener.beat(epoch)
    topic_id = await _made(listener)
    answer = await listener.ask(listener.directories, _directories(epoch, topic_id, 1, 7))
    (directory,) = answer.directories
    said = {one.partition_index: one.error_code for one in directory.topics[0].partitions}
    assert (answer.error_code, said) == (0, {1: 0, 7: ErrorCode.UNKNOWN_TOPIC_ID})
    noted = listener.quorum.image.topics_by_name["t"].partitions
    assert [noted[one].directory_of(1) for one in (0, 1)] == [DIRECTORY_UNASSIGNED, b"d" * 16]
    stale = await listener.ask(listener.directories, _directories(epoch - 1, topic_id, 0))
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert listener.quorum.image.topics_by_name["t"].partitions[0].directory_of(1) == (
        DIRECTORY_UNASSIGNED
    )


@pytest.mark.parametrize(
    ("forgets", "noted", "leaderless"),
    [(FORGETS, DIRECTORY_LOST, [0, 1]), (FORGETS_LAST_COPIES, DIRECTORY_UNASSIGNED, [])],
)
async def test_the_lost_directory_of_a_broker_on_a_new_disk_is_given_up(
    listener: Listener, forgets: int, noted: bytes, leaderless: list[int]
) -> None:
    epoch = (await listener.register()).broker_epoch
    await listener.beat(epoch)
    topic_id = await _made(listener)
    await listener.ask(listener.directories, _directories(epoch, topic_id, 0, 1))
    cls = message("AssignReplicasToDirsRequest").cls
    lost = cls.Directories(id=b"d" * 16, topics=[])

    async def forget(epoch: int, *lost: Any, how: int = forgets) -> Any:
        asked = cls(broker_id=1, broker_epoch=epoch, directories=list(lost), forgets=how)
        return await listener.ask(listener.directories, asked)

    assert (await forget(epoch, lost)).error_code == ErrorCode.INVALID_REQUEST  # it serves
    await listener.beat(epoch, want_shut_down=True)
    await listener.beat(epoch, want_shut_down=True)
    epoch = (await listener.register(life=2, log_dirs=[b"e" * 16])).broker_epoch
    await listener.beat(epoch)
    for answer, code in (
        (await forget(epoch - 1, lost), ErrorCode.STALE_BROKER_EPOCH),
        (await forget(epoch), ErrorCode.INVALID_REQUEST),
        (await forget(epoch, lost, how=3), ErrorCode.INVALID_REQUEST),
    ):
        assert (answer.error_code, answer.directories) == (code, [])
    before = listener.quorum.image
    answer = await forget(epoch, lost)
    assert answer.error_code == 0
    assert forgotten_by(answer, before, 1, b"d" * 16) == Forgotten(
        [("t", 0), ("t", 1)], [("t", one) for one in leaderless]
    )
    partitions = listener.quorum.image.topics_by_name["t"].partitions
    assert {one.directory_of(1) for one in partitions.values()} == {noted}

    answers = message("AssignReplicasToDirsResponse").cls
    for refused, why in (
        (answers(directories=[answers.Directories(id=b"d" * 16)]), "is Apache Kafka's"),
        (answers(error_code=int(ErrorCode.STALE_BROKER_EPOCH)), "has registered again"),
        (answers(error_code=int(ErrorCode.INVALID_REQUEST)), "serves from it"),
        (answers(error_code=int(ErrorCode.REQUEST_TIMED_OUT)), "answers REQUEST_TIMED_OUT"),
    ):
        with pytest.raises(ForgetError, match=why):
            forgotten_by(refused, before, 1, b"d" * 16)


def _isr(epoch: int, topic_id: bytes, *partitions: int, leader_epoch: int = 0) -> Any:
    cls = message("AlterPartitionRequest").cls
    part = cls.Topics.Partitions
    asked = [
        part(
            partition_index=one,
            leader_epoch=leader_epoch,
            new_isr=[1],
            new_isr_with_epochs=[part.NewIsrWithEpochs(broker_id=1, broker_epoch=epoch)],
            partition_epoch=0,
        )
        for one in partitions
    ]
    topics = [
        cls.Topics(topic_id=topic_id, partitions=asked),
        cls.Topics(topic_id=b"x" * 16, partitions=asked[:1]),
    ]
    return cls(broker_id=1, broker_epoch=epoch, topics=topics)


@pytest.mark.parametrize("version", [2, 3])
async def test_a_leader_asks_for_an_isr_and_hears_of_each_partition(
    listener: Listener, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    epoch = (await listener.register()).broker_epoch
    await listener.beat(epoch)
    topic_id = await _made(listener)
    caplog.set_level(logging.INFO)
    answer = await listener.ask(listener.isr, _isr(epoch, topic_id, 1, 7), version)
    mine, unknown = answer.topics
    assert [one.topic_id for one in answer.topics] == [topic_id, b"x" * 16]
    codes = [(one.partition_index, one.error_code) for one in mine.partitions]
    assert codes == [(1, 0), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    taken = mine.partitions[0]
    assert (taken.leader_id, taken.isr, taken.leader_epoch, taken.partition_epoch) == (1, [1], 0, 0)
    assert [one.error_code for one in unknown.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]
    lines = [one.getMessage() for one in caplog.records if "ISRs were refused" in one.message]
    assert len(lines) == 1
    assert "broker=1 count=2" in lines[0]


async def test_another_life_of_a_leader_gets_one_code_for_all(listener: Listener) -> None:
    epoch = (await listener.register()).broker_epoch
    topic_id = await _made_when_served(listener, epoch)
    answer = await listener.ask(listener.isr, _isr(epoch - 1, topic_id, 0))
    assert (answer.error_code, answer.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])


async def _made_when_served(listener: Listener, epoch: int) -> bytes:
    await listener.beat(epoch)
    return await _made(listener)


async def test_a_controller_stands_in_the_metadata_as_it_says(listener: Listener) -> None:
    cls = message("ControllerRegistrationRequest").cls
    asked = cls(
        controller_id=3,
        incarnation_id=b"i" * 16,
        zk_migration_ready=True,
        listeners=[cls.Listeners(name="CONTROLLER", host="h", port=9093, security_protocol=3)],
        features=[cls.Features(name="f", min_supported_version=1, max_supported_version=2)],
    )
    assert (await listener.ask(listener.controllers, asked)).error_code == 0
    assert listener.quorum.image.controllers[3] == ControllerImage(
        id=3,
        incarnation_id=b"i" * 16,
        endpoints=(Endpoint("CONTROLLER", "h", 9093, 3),),
        features={"f": (1, 2)},
    )
    refused = await listener.ask(listener.controllers, cls(controller_id=-1))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Controller id -1 is negative.",
    )


async def test_no_producer_id_is_given_twice(listener: Listener) -> None:
    epoch = (await listener.register()).broker_epoch
    cls = message("AllocateProducerIdsRequest").cls
    given = [
        await listener.ask(listener.producer_ids, cls(broker_id=1, broker_epoch=epoch))
        for _ in range(2)
    ]
    assert [(one.producer_id_start, one.producer_id_len) for one in given] == [
        (0, 1000),
        (1000, 1000),
    ]
    stale = await listener.ask(listener.producer_ids, cls(broker_id=1, broker_epoch=epoch + 9))
    assert (stale.error_code, stale.producer_id_len) == (ErrorCode.STALE_BROKER_EPOCH, 0)


async def test_a_broker_of_ours_says_that_it_keeps_the_order_of_directories(
    listener: Listener,
) -> None:
    for keeps in (0, 1):
        listener.quorum.run(SESSION_MS + 1)
        registered = await listener.register(life=5 + keeps, keeps_directories=keeps)
        broker = listener.quorum.image.brokers[1]
        assert (broker.directories_assigned_from == registered.broker_epoch) is bool(keeps)


async def test_no_topic_is_placed_beyond_the_descriptors_that_a_broker_reports(
    listener: Listener,
) -> None:
    """What was placed since the last report counts, also where the report left before it."""
    epoch = (await listener.register(free_descriptors=3)).broker_epoch
    read = listener.quorum.log_end() - 1
    await listener.beat(epoch, offset=read, free_descriptors=3)
    assert await _create(listener, "a", 2) == (0, None)
    code, said = await _create(listener, "b", 2)
    assert code == ErrorCode.POLICY_VIOLATION
    assert "Broker 1 has 1 descriptors left" in said
    assert "needs 2 there" in said
    assert "ulimit -n" in said
    await listener.beat(epoch, offset=read, free_descriptors=3)
    assert (await _create(listener, "b", 2))[0] == ErrorCode.POLICY_VIOLATION
    assert (await _create(listener, "c", 1, validate_only=True))[0] == 0
    assert (await _create(listener, "c", 1))[0] == 0
    assert (await _create(listener, "d", 1))[0] == ErrorCode.POLICY_VIOLATION
    covered = listener.quorum.log_end() - 1
    await listener.beat(epoch, offset=covered, free_descriptors=2)
    assert (await _create(listener, "d", 2))[0] == 0
    assert set(listener.quorum.image.topics_by_name) == {"a", "c", "d"}


async def test_a_broker_says_at_once_how_many_files_it_may_open(listener: Listener) -> None:
    await listener.register(free_descriptors=7)
    assert listener.control.free_descriptors() == {1: 7}
    await listener.register(life=2)
    assert listener.control.free_descriptors() == {}


async def _create(listener: Listener, name: str, partitions: int, **fields: Any) -> tuple[int, Any]:
    cls = message("CreateTopicsRequest").cls
    topic = cls.Topics(name=name, num_partitions=partitions, replication_factor=1)
    (made,) = (await listener.ask(listener.create, cls(topics=[topic], **fields))).topics
    return made.error_code, made.error_message


async def test_elsewhere_all_of_it_is_answered_with_not_controller(listener: Listener) -> None:
    epoch = (await listener.register()).broker_epoch
    listener.quorum.depose()
    not_controller = ErrorCode.NOT_CONTROLLER
    assert (await listener.register()).error_code == not_controller
    assert (await listener.beat(epoch)).error_code == not_controller
    cls = message("CreateTopicsRequest").cls
    asked = cls(topics=[cls.Topics(name="t", num_partitions=1, replication_factor=1)])
    (made,) = (await listener.ask(listener.create, asked)).topics
    assert made.error_code == not_controller
    asked = message("AllocateProducerIdsRequest").cls(broker_id=1, broker_epoch=epoch)
    assert (await listener.ask(listener.producer_ids, asked)).error_code == not_controller
    asked = _directories(epoch, b"t" * 16, 0)
    assert (await listener.ask(listener.directories, asked)).error_code == not_controller
    asked = _isr(epoch, b"t" * 16, 0)
    assert (await listener.ask(listener.isr, asked)).error_code == not_controller


async def test_a_cancelled_caller_is_forgotten_and_its_decision_continues(
    listener: Listener,
) -> None:
    task = asyncio.ensure_future(listener.submit(lambda _: ControllerResult((), "answer")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    listener.quorum.run(10)
    assert task.cancelled()
    assert listener.quorum.loop.decision_count == 0


async def test_an_answer_comes_out_as_it_went_in(listener: Listener) -> None:
    task = asyncio.ensure_future(listener.submit(lambda _: ControllerResult((), "answer")))
    await asyncio.sleep(0)
    listener.quorum.run(10)
    assert await task == "answer"


TALK = Path(__file__).parents[3] / "golden" / "controller" / "broker-talk.json"
DIFFERS = {
    # Kafka refuses the next life of a broker that it let go, while the session lasts.
    "broker 1 life 3 registers (v4) -> 101": "0 new epoch of 1, life 3",
    "broker 3 life 2 registers (v4) -> 101": "0 new epoch of 3, life 2",
    "broker 2 life 2 registers (v4) -> 101": "0 new epoch of 2, life 2",
}


def expected(line: str) -> str:
    said = line.partition(" -> ")[0]
    return f"{said} -> {DIFFERS[line]}" if line in DIFFERS else line


async def test_brokers_hear_what_kafka_says(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    handlers = {
        ApiKey.BROKER_REGISTRATION: listener.registration,
        ApiKey.BROKER_HEARTBEAT: listener.heartbeat,
        ApiKey.CREATE_TOPICS: listener.create,
        ApiKey.ALTER_PARTITION: listener.isr,
    }
    talk = BrokerTalk(
        lambda key, version, asked: listener.ask(handlers[key], asked, version), "cluster"
    )
    recorded = json.loads(TALK.read_text())
    assert recorded["kafka_version"] == "4.3.1"
    assert set(DIFFERS) <= set(recorded["lines"])
    assert await talk.tell() == [expected(line) for line in recorded["lines"]]
