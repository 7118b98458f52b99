"""What an operator asks of an active controller about replicas, and its answers as a transcript.

As `broker_talk`, whose brokers these are: they are registered, and a leader says who is in sync.

    python -m tests.support.kafka.reassignment_talk HOST:PORT CLUSTER_ID > transcript.json
"""

import asyncio
import json
import sys
from collections.abc import Sequence

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from tests.support.kafka.broker_talk import BrokerTalk, asking

_Alter = request(ApiKey.ALTER_PARTITION_REASSIGNMENTS).cls
_List = request(ApiKey.LIST_PARTITION_REASSIGNMENTS).cls
_Isr = request(ApiKey.ALTER_PARTITION).cls


class ReassignmentTalk(BrokerTalk):
    """One transcript."""

    async def alter(
        self, topic: str, replicas: Sequence[int] | None, *, partition: int = 0, allow: bool = True
    ) -> None:
        """An operator wants other replicas; None: no longer."""
        one = _Alter.Topics.Partitions(
            partition_index=partition, replicas=None if replicas is None else list(replicas)
        )
        asked = _Alter(
            topics=[_Alter.Topics(name=topic, partitions=[one])],
            allow_replication_factor_change=allow,
            timeout_ms=5_000,
        )
        answer = await self._ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, asked)
        ((result,),) = (each.partitions for each in answer.responses)
        words = "" if allow else " without another factor"
        # The text of a code that says everything Kafka leaves to its client.
        is_clear = result.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        text = "" if is_clear else result.error_message or ""
        self._note(
            f"{topic}-{partition} on {replicas}{words}",
            f"{answer.error_code} {result.error_code} {text}",
        )

    async def listed(self, *topics: str) -> None:
        """An operator looks what continues, everywhere or in some topics."""
        asked = [_List.Topics(name=one, partition_indexes=[0, 7]) for one in topics]
        answer = await self._ask(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, _List(topics=asked or None, timeout_ms=5_000)
        )
        found = sorted(
            f"{topic.name}-{one.partition_index}: {one.replicas} adding {one.adding_replicas} "
            f"removing {one.removing_replicas}"
            for topic in answer.topics
            for one in topic.partitions
        )
        self._note(f"list {', '.join(topics) or 'all'}", f"{answer.error_code} {'; '.join(found)}")

    async def isr(
        self, topic: bytes, leader: int, *members: int, epochs: tuple[int, int], name: str
    ) -> None:
        """A leader says who is in sync, under (leader epoch, partition epoch)."""
        cls = _Isr.Topics.Partitions
        one = cls(
            partition_index=0,
            leader_epoch=epochs[0],
            partition_epoch=epochs[1],
            new_isr_with_epochs=[
                cls.NewIsrWithEpochs(broker_id=each, broker_epoch=self._newest[each])
                for each in members
            ],
        )
        asked = _Isr(
            broker_id=leader,
            broker_epoch=self._newest[leader],
            topics=[_Isr.Topics(topic_id=topic, partitions=[one])],
        )
        answer = await self._ask(ApiKey.ALTER_PARTITION, 3, asked)
        ((result,),) = (each.partitions for each in answer.topics)
        state = f"leader {result.leader_id} in {result.leader_epoch}, {result.isr}"
        self._note(
            f"{leader} says {name} has {list(members)} in sync, {epochs}",
            f"{result.error_code} {state}, {result.partition_epoch}",
        )

    async def made(self, name: str, *brokers: int) -> bytes:
        """A topic of one partition; returns its id."""
        cls = request(ApiKey.CREATE_TOPICS).cls
        assignment = cls.Topics.Assignments(partition_index=0, broker_ids=list(brokers))
        topic = cls.Topics(
            name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        answer = await self._ask(ApiKey.CREATE_TOPICS, 7, cls(topics=[topic], timeout_ms=5_000))
        return bytes(answer.topics[0].topic_id)

    async def delete(self, name: str) -> None:
        """A topic goes."""
        cls = request(ApiKey.DELETE_TOPICS).cls
        asked = cls(topics=[cls.Topics(name=name)], timeout_ms=5_000)
        answer = await self._ask(ApiKey.DELETE_TOPICS, 6, asked)
        self._note(f"delete {name}", str(answer.responses[0].error_code))

    async def tell(self) -> list[str]:
        """Go through all steps."""
        for broker_id in (1, 2, 3, 4):
            await self.register(broker_id)
            await self.beat(broker_id)
        await self._refusals()
        await self._additions()
        await self._orders()
        await self._removals()
        await self._moves()
        await self._moves_cancelled()
        await self._replaced()
        await self._cancellations()
        return self.lines

    async def _refusals(self) -> None:
        await self.made("r", 1)
        await self.listed()
        await self.listed("r", "unknown")
        await self.alter("unknown", [1])
        await self.alter("r", [1, 2], partition=7)
        await self.alter("r", [])
        await self.alter("r", [1, 1])
        await self.alter("r", [1, 9])
        await self.alter("r", [-1])
        await self.alter("r", [9, 1, 1])
        await self.alter("r", None)
        await self.alter("r", [1])
        await self.alter("r", [1, 2], allow=False)

    async def _additions(self) -> None:
        topic = await self.made("a", 1)
        await self.alter("a", [1, 2, 3])
        await self.listed()
        await self.listed("a")
        await self.listed("r")
        await self.alter("a", [1, 2, 3])
        await self.alter("a", [1, 2, 3], allow=False)
        await self.alter("a", [1, 2, 3, 4], allow=False)
        await self.isr(topic, 1, 1, 2, epochs=(0, 0), name="a")
        await self.isr(topic, 1, 1, 2, epochs=(0, 1), name="a")
        await self.listed()
        await self.isr(topic, 1, 1, epochs=(0, 2), name="a")
        await self.isr(topic, 1, 1, 3, epochs=(0, 3), name="a")
        await self.isr(topic, 1, 1, 2, 3, epochs=(0, 4), name="a")
        await self.listed()
        await self.isr(topic, 1, 1, 2, epochs=(0, 5), name="a")
        await self.alter("a", None)

    async def _orders(self) -> None:
        topic = await self.made("o", 1, 2)
        await self.alter("o", [2, 1])
        await self.listed()
        await self.isr(topic, 1, 1, 2, epochs=(0, 1), name="o")
        await self.alter("o", [3, 2, 1])
        await self.listed()
        await self.isr(topic, 1, 1, 2, 3, epochs=(0, 2), name="o")
        await self.listed()

    async def _cancellations(self) -> None:
        topic = await self.made("c", 1)
        await self.alter("c", [1, 2, 3])
        await self.isr(topic, 1, 1, 2, epochs=(0, 1), name="c")
        await self.alter("c", None)
        await self.listed()
        await self.isr(topic, 1, 1, epochs=(0, 3), name="c")
        await self.isr(topic, 1, 1, epochs=(1, 3), name="c")
        await self.alter("c", [1, 2, 3])
        await self.isr(topic, 1, 1, 2, epochs=(1, 4), name="c")
        await self.beat(1, want_shut_down=True)
        await self.isr(topic, 2, 2, epochs=(2, 6), name="c")
        await self.alter("c", None)
        await self.listed()

    async def _removals(self) -> None:
        topic = await self.made("s", 1, 2, 3, 4)
        await self.alter("s", [1, 2, 4])
        await self.listed()
        await self.isr(topic, 1, 1, 2, epochs=(0, 1), name="s")
        await self.isr(topic, 1, 1, 2, epochs=(1, 1), name="s")
        await self.alter("s", [4, 1])
        await self.listed()
        await self.alter("s", [1, 4, 2], allow=False)
        await self.alter("s", [1, 4], allow=False)
        await self.isr(topic, 1, 1, 2, 4, epochs=(1, 4), name="s")
        await self.alter("s", [4])
        await self.listed()
        await self.isr(topic, 1, 1, epochs=(2, 5), name="s")
        await self.isr(topic, 4, 4, epochs=(3, 6), name="s")
        await self.isr(topic, 4, 1, 4, epochs=(3, 6), name="s")

    async def _moves(self) -> None:
        topic = await self.made("m", 1, 2)
        await self.alter("m", [4, 3], allow=False)
        await self.listed()
        await self.isr(topic, 1, 1, 2, 3, epochs=(0, 1), name="m")
        await self.isr(topic, 1, 1, 3, epochs=(0, 2), name="m")
        await self.listed()
        await self.isr(topic, 1, 1, 3, 4, epochs=(0, 3), name="m")
        await self.listed()
        await self.isr(topic, 1, 1, 3, 4, epochs=(0, 4), name="m")
        await self.isr(topic, 4, 4, epochs=(1, 4), name="m")
        await self.alter("m", None)
        topic = await self.made("k", 1, 2)
        await self.alter("k", [1, 3])
        await self.listed()
        await self.isr(topic, 1, 1, 3, epochs=(0, 1), name="k")
        await self.isr(topic, 1, 1, epochs=(1, 2), name="k")
        await self.alter("k", [3, 2, 4, 1])
        await self.listed()
        await self.isr(topic, 1, 1, 2, 3, 4, epochs=(1, 4), name="k")

    async def _moves_cancelled(self) -> None:
        topic = await self.made("n", 2, 1)
        await self.alter("n", [3, 1, 4])
        await self.listed()
        await self.isr(topic, 2, 2, 1, 3, epochs=(0, 1), name="n")
        await self.alter("n", None)
        await self.listed()
        await self.isr(topic, 2, 2, epochs=(0, 3), name="n")
        await self.isr(topic, 2, 2, epochs=(1, 3), name="n")
        await self.alter("n", None)
        topic = await self.made("e", 1)
        await self.alter("e", [2])
        await self.isr(topic, 1, 1, 2, epochs=(0, 1), name="e")
        await self.alter("e", None)
        topic = await self.made("d", 1, 2)
        await self.alter("d", [1])
        await self.alter("d", None)

    async def _replaced(self) -> None:
        topic = await self.made("p", 1, 2)
        await self.alter("p", [3, 4])
        await self.alter("p", [3, 2])
        await self.listed()
        await self.alter("p", [3, 4])
        await self.listed()
        await self.isr(topic, 1, 1, 2, 4, epochs=(0, 3), name="p")
        await self.alter("p", None)
        await self.listed()
        await self.isr(topic, 1, 1, epochs=(1, 5), name="p")
        await self.delete("p")
        await self.alter("p", [1])
        await self.listed("p")


async def _record(address: str, cluster_id: str) -> list[str]:
    return await ReassignmentTalk(await asking(address), cluster_id).tell()


if __name__ == "__main__":
    found = asyncio.run(_record(*sys.argv[1:]))
    json.dump({"kafka_version": "4.3.1", "lines": found}, sys.stdout, indent=1)
