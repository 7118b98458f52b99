"""aiokafka as a member of a group."""

import asyncio
import logging
import sys
from typing import Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from tests.support.clients.wire import Commands, Owned, say

Partition = aiokafka.TopicPartition
STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


def pairs(partitions: Any) -> list[tuple[str, int]]:
    return [(one.topic, one.partition) for one in partitions]


class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells of what is given and taken: an eager client gives everything away first."""

    def __init__(self, owned: Owned, consumer: Any) -> None:
        self.owned, self.consumer = owned, consumer

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            self.owned.gone("revoked", pairs(revoked))

    async def on_partitions_assigned(self, assigned: Any) -> None:
        coordinator = self.consumer._coordinator  # no other way to its generation
        self.owned.assigned(
            pairs(assigned), member=coordinator.member_id, generation=coordinator.generation
        )


class Member:
    """One consumer."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.owned = Owned()
        self.consumer: Any = None

    async def subscribe(self, command: dict[str, Any]) -> None:
        while True:
            consumer = self._consumer(command)
            try:
                await consumer.start()
            except KafkaConnectionError:  # the broker is down, and aiokafka asks only once
                await consumer.stop()
                await asyncio.sleep(0.2)
            else:
                self.consumer = consumer
                return

    def _consumer(self, command: dict[str, Any]) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=command["group"],
            group_instance_id=command.get("instance"),
            partition_assignment_strategy=[STRATEGIES[command.get("strategy") or "range"]],
            session_timeout_ms=command.get("session_ms", 6_000),
            heartbeat_interval_ms=500,
            auto_offset_reset=command.get("reset", "earliest"),
            enable_auto_commit=False,
            metadata_max_age_ms=1_000,
        )
        listener = Listener(self.owned, consumer)
        if command.get("topics"):
            consumer.subscribe(topics=command["topics"], listener=listener)
        else:
            consumer.subscribe(pattern=command["pattern"], listener=listener)
        return consumer

    async def poll(self) -> None:
        try:
            polled = await self.consumer.getmany(timeout_ms=50)
        except KafkaError as error:
            say("error", error=type(error).__name__, text=str(error))
            return
        for records in polled.values():
            for one in records:
                self.owned.record(one.topic, one.partition, one.offset, one.value)

    async def commit(self, command: dict[str, Any]) -> None:
        offsets = self.owned.to_commit(command)
        asked = {Partition(t, p): OffsetAndMetadata(o, m) for t, p, o, m in offsets}
        error = None
        try:
            if asked:
                await self.consumer.commit(asked)
        except KafkaError as refused:
            error = type(refused).__name__
        say("committed", offsets=offsets, error=error)

    async def committed(self, command: dict[str, Any]) -> None:
        found = []
        for topic, partition in command["partitions"]:
            offset = await self.consumer.committed(Partition(topic, partition))
            found.append((topic, partition, -1 if offset is None else offset, ""))
        say("offsets", offsets=found)

    async def admin(self, command: dict[str, Any]) -> None:
        answer, error = None, None
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            match command["what"]:
                case "list":
                    listed = await admin.list_consumer_groups()
                    answer = [[one[0], None] for one in listed]
                case "describe":
                    (one,) = await admin.describe_consumer_groups([command["group"]])
                    described = one.to_object()["groups"][0]
                    answer = {"state": described["state"], "members": len(described["members"])}
                case "offsets":
                    found = await admin.list_consumer_group_offsets(command["group"])
                    answer = [
                        [p.topic, p.partition, o.offset, o.metadata] for p, o in found.items()
                    ]
                case _:
                    error = "unsupported"
        except KafkaError as refused:
            error = type(refused).__name__
        finally:
            await admin.close()
        say("admin", what=command["what"], answer=answer, error=error)


async def main() -> None:
    logging.disable(logging.CRITICAL)
    member = Member(sys.argv[1])
    commands = Commands()
    while True:
        command = commands.next() if member.consumer else await asyncio.to_thread(commands.wait)
        match command and command["do"]:
            case "subscribe":
                await member.subscribe(command)
            case "commit":
                await member.commit(command)
            case "committed":
                await member.committed(command)
            case "admin":
                await member.admin(command)
            case "close" | "end":
                if member.consumer:
                    await member.consumer.stop()
                say("closed")
                return
        if member.consumer:
            await member.poll()


asyncio.run(main())
