"""Replicas whose directory the metadata did not take are told of: nobody waits for ever."""

import asyncio
from collections.abc import Callable, Collection
from typing import TypeVar

from broker.node.registration import BrokerRegistration
from kafka_protocol.errors import KafkaError
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage

R = TypeVar("R")
REPLICA = ReplicaId(b"t" * 16, 3)


async def test_replicas_whose_directory_cannot_be_noted_are_told_of() -> None:
    async def submit(_decide: Callable[[MetadataImage], ControllerResult[R]]) -> R:
        raise KafkaError("not now")

    told: list[tuple[list[ReplicaId], str]] = []

    def on_failed(replicas: Collection[ReplicaId], error: KafkaError) -> None:
        told.append((list(replicas), str(error)))

    registration = BrokerRegistration(submit, Registration(1, b"i" * 16, ()))
    registration.on_assignment_failed = on_failed
    registration.assign({REPLICA: b"d" * 16})
    for _ in range(3):
        await asyncio.sleep(0)
    assert told == [([REPLICA], "not now")]
