"""ElectLeaders, from the wire to the decision and back."""

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.elect_leaders import ElectLeadersHandler
from broker.network.registry import RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.errors import NotControllerError
from tests.support.worlds.controller_listener import Listener


async def _with_topic(tmp_path: Path) -> Listener:
    """A controller with a broker, and a topic of two partitions on it."""
    listener = Listener(tmp_path)
    epoch = (await listener.register()).broker_epoch
    await listener.beat(epoch)
    cls = message("CreateTopicsRequest").cls
    topic = cls.Topics(name="t", num_partitions=2, replication_factor=1)
    await listener.ask(listener.create, cls(topics=[topic]))
    return listener


def _asked(*names: str, election_type: int = 0) -> Any:
    cls = message("ElectLeadersRequest").cls
    topics = [cls.TopicPartitions(topic=name, partitions=[0, 9]) for name in names]
    return cls(election_type=election_type, topic_partitions=topics or None)


def _handler(listener: Listener) -> ElectLeadersHandler:
    return ElectLeadersHandler(listener.submit, ElectionRules())


def _codes(answer: Any) -> dict[str, list[tuple[int, int]]]:
    return {
        one.topic: [(each.partition_id, each.error_code) for each in one.partition_result]
        for one in answer.replica_election_results
    }


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_each_partition_has_its_answer(tmp_path: Path, version: int) -> None:
    listener = await _with_topic(tmp_path)
    answer = await listener.ask(_handler(listener), _asked("t", "x"), version)
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert answer.error_code == 0
    assert _codes(answer) == {
        "t": [(0, int(ErrorCode.ELECTION_NOT_NEEDED)), (9, unknown)],
        "x": [(0, unknown), (9, unknown)],
    }
    assert _codes(await listener.ask(_handler(listener), _asked(), version)) == {"t": []}


@pytest.mark.parametrize("version", [1, 2])
async def test_an_unknown_type_is_an_error_of_all(tmp_path: Path, version: int) -> None:
    listener = await _with_topic(tmp_path)
    asked = _asked("t", election_type=3)
    answer = await listener.ask(_handler(listener), asked, version)
    invalid = int(ErrorCode.INVALID_REQUEST)
    assert (answer.error_code, _codes(answer)) == (invalid, {"t": [(0, invalid), (9, invalid)]})


async def test_what_is_not_done_is_said_beside_each_partition(tmp_path: Path) -> None:
    listener = await _with_topic(tmp_path)
    context = RequestContext(ApiKey.ELECT_LEADERS, 0, 1, "c", "CLIENTS", ("127.0.0.1", 1), 0)
    answer = _handler(listener).refuse(context, _asked("t"), NotControllerError("not here"))
    code = int(ErrorCode.NOT_CONTROLLER)
    assert (answer.error_code, _codes(answer)) == (code, {"t": [(0, code), (9, code)]})
