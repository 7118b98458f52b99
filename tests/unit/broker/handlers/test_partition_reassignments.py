"""Replicas come and go as by Kafka's controller, from the wire to the decision and back."""

import json
from pathlib import Path
from typing import Any

from broker.network.registry import RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from metadata_topic.controller.errors import NotControllerError
from tests.support.kafka.reassignment_talk import ReassignmentTalk
from tests.support.worlds.controller_listener import Listener

TALK = Path(__file__).parents[3] / "golden" / "controller" / "reassignment-talk.json"
_Alter = request(ApiKey.ALTER_PARTITION_REASSIGNMENTS).cls


class Talk(ReassignmentTalk):
    """What is said to our controller."""

    def __init__(self, listener: Listener) -> None:
        handlers = {
            ApiKey.BROKER_REGISTRATION: listener.registration,
            ApiKey.BROKER_HEARTBEAT: listener.heartbeat,
            ApiKey.CREATE_TOPICS: listener.create,
            ApiKey.DELETE_TOPICS: listener.delete,
            ApiKey.ALTER_PARTITION: listener.isr,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: listener.reassign,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: listener.reassignments,
        }
        super().__init__(
            lambda key, version, asked: listener.ask(handlers[key], asked, version), "cluster"
        )


async def test_replicas_come_and_go_as_kafka_says(tmp_path: Path) -> None:
    recorded = json.loads(TALK.read_text())
    assert recorded["kafka_version"] == "4.3.1"
    assert await Talk(Listener(tmp_path)).tell() == recorded["lines"]


async def test_an_addition_that_grows_is_cancelled_as_a_whole(tmp_path: Path) -> None:
    """DIFFERS: Kafka forgets that it added 2, which stays."""
    talk = Talk(Listener(tmp_path))
    for broker_id in (1, 2, 3):
        await talk.register(broker_id)
        await talk.beat(broker_id)
    await talk.made("t", 1)
    await talk.alter("t", [1, 2])
    await talk.alter("t", [1, 2, 3])
    await talk.listed()
    await talk.alter("t", None)
    await talk.listed()
    await talk.alter("t", [1])
    assert talk.lines[-4:] == [
        "list all -> 0 t-0: [1, 2, 3] adding [2, 3] removing []",
        "t-0 on None -> 0 0",
        "list all -> 0",
        "t-0 on [1] -> 0 0",
    ]


async def test_a_broker_without_descriptors_gets_no_replica(tmp_path: Path) -> None:
    talk = Talk(Listener(tmp_path))
    await talk.register(1)
    await talk.beat(1)
    await talk.register(2, free_descriptors=1)
    await talk.made("t", 1)
    await talk.made("u", 1)
    await talk.alter("t", [1, 2])
    await talk.alter("u", [1, 2])
    first, second = talk.lines[-2:]
    assert first == "t-0 on [1, 2] -> 0 0"
    assert second.startswith(f"u-0 on [1, 2] -> 0 {int(ErrorCode.POLICY_VIOLATION)} Broker 2 has 0")


async def test_what_is_not_done_is_said_beside_each_partition(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    context = RequestContext(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, 1, "c", "CLIENTS", ("127.0.0.1", 1), 0
    )
    partition = _Alter.Topics.Partitions(partition_index=3, replicas=[1])
    asked = _Alter(topics=[_Alter.Topics(name="t", partitions=[partition])])
    error = NotControllerError("not here")
    answer: Any = listener.reassign.refuse(context, asked, error)
    (topic,) = answer.responses
    codes = [(one.partition_index, one.error_code) for one in topic.partitions]
    assert (answer.error_code, codes) == (error.code, [(3, error.code)])
    listed: Any = listener.reassignments.refuse(context, None, error)
    assert (listed.error_code, listed.topics) == (error.code, [])
