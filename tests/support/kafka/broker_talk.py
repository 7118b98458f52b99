"""What brokers say to an active controller, step by step, and its answers as a transcript.

The same steps are asked of Apache Kafka's controller, once, for `tests/golden`, and of ours in each
run. Broker epochs differ; a transcript names them by the registration that gave them. The brokers
also send the tagged fields of our own: Kafka skips them.

    python -m tests.support.kafka.broker_talk HOST:PORT CLUSTER_ID > transcript.json

asks a controller that runs and whose cluster has no brokers (Kafka: `process.roles=controller`).
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message, request, response

Ask = Callable[[ApiKey, int, Any], Awaitable[Any]]
"""Sends a request of a version and returns the decoded answer."""

OUR_OWN: Final = {"free_descriptors": 1_000}
NEVER: Final = 10**9
FEATURES: Final = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 2),
    "streams.version": (0, 2),
}


class BrokerTalk:
    """One transcript."""

    def __init__(self, ask: Ask, cluster_id: str) -> None:
        self._ask = ask
        self._cluster_id = cluster_id
        self._epochs: dict[int, str] = {}
        self._newest: dict[int, int] = {}
        self._topic_id = b""
        self.lines: list[str] = []

    async def register(
        self, broker_id: int, *, life: int = 1, version: int = 4, **changes: Any
    ) -> None:
        """A broker registers."""
        cls = message("BrokerRegistrationRequest").cls
        features = changes.pop("features", FEATURES)
        log_dirs = changes.pop("log_dirs", [100 + broker_id] if version >= 2 else [])
        fields = {
            "broker_id": broker_id,
            "cluster_id": self._cluster_id,
            "incarnation_id": bytes([life]) * 16,
            "listeners": [cls.Listeners(name="PLAINTEXT", host="localhost", port=9092)],
            "features": [
                cls.Features(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in features.items()
            ],
            "log_dirs": [
                bytes(15) + bytes([one]) if one < 100 else bytes([one]) * 16 for one in log_dirs
            ],
            **OUR_OWN,
            "keeps_directories": 1,
        }
        answer = await self._ask(ApiKey.BROKER_REGISTRATION, version, cls(**(fields | changes)))
        epoch = self._epochs.get(answer.broker_epoch, "")
        if answer.error_code == 0:
            if not epoch:
                epoch = f"new epoch of {broker_id}, life {life}"
                self._epochs[answer.broker_epoch] = epoch
            self._newest[broker_id] = answer.broker_epoch
        said = f" with {sorted(changes)}" if changes else ""
        said += f" in {list(log_dirs)}" if log_dirs != [100 + broker_id] else ""
        missing, more = FEATURES.items() - features.items(), features.items() - FEATURES.items()
        said += f" without {sorted(missing)}" if missing else ""
        said += f" with {sorted(more)}" if more else ""
        self._note(
            f"broker {broker_id} life {life} registers (v{version}){said}",
            f"{answer.error_code} {epoch}",
        )

    async def beat(
        self, broker_id: int, *, behind: bool = False, stale: bool = False, **said: Any
    ) -> None:
        """A broker sends a heartbeat; `behind`: it has read less than its registration."""
        cls = message("BrokerHeartbeatRequest").cls
        epoch = self._newest.get(broker_id, NEVER)
        offset = epoch - 1 if behind else NEVER
        fields = {"broker_id": broker_id, "broker_epoch": epoch - stale, **OUR_OWN}
        answer = await self._ask(
            ApiKey.BROKER_HEARTBEAT, 1, cls(current_metadata_offset=offset, **(fields | said))
        )
        words = [name for name, holds in {"behind": behind, "stale": stale}.items() if holds]
        words += [name for name in said if name.startswith("want")]
        flags = {name: getattr(answer, name) for name in _FLAGS}
        hears = " ".join(name for name, holds in flags.items() if holds)
        self._note(
            f"broker {broker_id} beats {' '.join(words)}".rstrip(),
            f"{answer.error_code} {hears}",
        )

    async def create(self, name: str, *brokers: int, factor: int = -1) -> None:
        """Somebody makes a topic of one partition, on these brokers or with so many replicas."""
        cls = message("CreateTopicsRequest").cls
        assigned = cls.Topics.Assignments(partition_index=0, broker_ids=list(brokers))
        topic = cls.Topics(
            name=name,
            num_partitions=-1 if brokers else 1,
            replication_factor=factor,
            assignments=[assigned] if brokers else [],
        )
        answer = await self._ask(ApiKey.CREATE_TOPICS, 7, cls(topics=[topic], timeout_ms=5_000))
        (made,) = answer.topics
        self._topic_id = made.topic_id
        on = f"on {list(brokers)}" if brokers else f"with {factor} replicas"
        self._note(f"topic {name} {on}", str(made.error_code))

    async def propose(
        self,
        leader: int,
        *isr: int,
        epochs: tuple[int, int] = (0, 0),
        strange: str = "",
        recovering: int = 0,
    ) -> None:
        """A broker asks for an ISR of the newest topic, under (leader, partition) epoch.

        `strange`: the life of the sender or of the last member is another one, or the topic or its
        partition is.
        """
        cls = message("AlterPartitionRequest").cls
        part_cls = cls.Topics.Partitions
        members = [
            part_cls.NewIsrWithEpochs(broker_id=one, broker_epoch=self._newest.get(one, -1))
            for one in isr
        ]
        if strange == "member":
            members[-1].broker_epoch -= 1
        leader_epoch, partition_epoch = epochs
        part = part_cls(
            partition_index=int(strange == "partition"),
            leader_epoch=leader_epoch,
            new_isr_with_epochs=members,
            leader_recovery_state=recovering,
            partition_epoch=partition_epoch,
        )
        topic_id = b"x" * 16 if strange == "topic" else self._topic_id
        answer = await self._ask(
            ApiKey.ALTER_PARTITION,
            3,
            cls(
                broker_id=leader,
                broker_epoch=self._newest[leader] - (strange == "sender"),
                topics=[cls.Topics(topic_id=topic_id, partitions=[part])],
            ),
        )
        heard = str(answer.error_code)
        for topic in answer.topics:
            (one,) = topic.partitions
            heard += f" {one.error_code}"
            if not one.error_code:
                heard += f" led by {one.leader_id}, ISR {one.isr}, epochs "
                heard += f"{one.leader_epoch} {one.partition_epoch}"
        more = f" strange {strange}" if strange else ""
        more += f" recovery state {recovering}" if recovering else ""
        self._note(f"broker {leader} asks for ISR {list(isr)} at {epochs}{more}", heard)

    def _note(self, said: str, heard: str) -> None:
        self.lines.append(f"{said} -> {heard.strip()}")

    async def tell(self) -> list[str]:
        """Go through all steps."""
        await self._registrations()
        await self._heartbeats()
        await self._shutdowns()
        await self._replicas()
        return self.lines

    async def _registrations(self) -> None:
        await self.beat(1)
        await self.register(1, cluster_id="another")
        await self.register(1, features={})
        await self.register(1, features=FEATURES | {"metadata.version": (7, 29)})
        await self.register(1, features=FEATURES | {"unheard.of": (1, 2)})
        await self.register(1, log_dirs=[])
        await self.register(1, log_dirs=[101, 101])
        await self.register(1, log_dirs=[2])
        await self.register(1, version=0)
        await self.register(1, version=1, is_migrating_zk_broker=True)
        await self.register(1)
        await self.register(1)
        await self.register(1, life=2)
        await self.register(2, log_dirs=[101])
        await self.register(2)

    async def _heartbeats(self) -> None:
        await self.beat(1, stale=True)
        await self.beat(1, behind=True)
        await self.beat(1, want_fence=True)
        await self.beat(1)
        await self.beat(1)
        await self.register(1)
        await self.beat(1, want_fence=True)
        await self.beat(1)
        await self.register(1, life=2)
        await self.beat(2)

    async def _shutdowns(self) -> None:
        await self.create("t", 1, 2)
        await self.beat(2, behind=True)
        await self.beat(1, want_shut_down=True)
        await self.beat(1, want_shut_down=True)
        await self.beat(2)
        await self.beat(1, want_shut_down=True)
        await self.register(1, life=3)
        await self.beat(1)
        await self.register(3)
        await self.beat(3)
        await self.beat(3, want_shut_down=True)
        await self.register(3, life=2)
        await self.register(3)
        await self.beat(3, behind=True)
        await self.beat(3, want_shut_down=True)
        await self.register(4)
        await self.beat(4, behind=True)
        await self.register(4, life=2)
        await self.beat(4)
        await self.beat(4, want_fence=True)
        await self.register(4, life=2)
        await self.beat(2, want_fence=True, want_shut_down=True)
        await self.register(2, life=2)

    async def _replicas(self) -> None:
        for one in (5, 6, 7):
            await self.register(one)
            await self.beat(one)
        await self.create("many", factor=99)
        await self.create("unknown", 5, 99)
        await self.create("repeated", 5, 5)
        await self.create("u", 5, 6)
        await self.propose(6, 5, 6)
        for strange in ("sender", "member", "topic", "partition"):
            await self.propose(5, 5, 6, strange=strange)
        for isr in ((5, 7), (5, 99), (5, 6, 6), (6,), ()):
            await self.propose(5, *isr)
        for epochs in ((-1, 0), (1, 0), (0, -1), (0, 1), (-1, 1)):
            await self.propose(5, 5, 6, epochs=epochs)
        await self.propose(5, 5, recovering=1)  # an unknown state would end Kafka's lead
        await self.propose(5, 5)
        await self.propose(5, 5, 6)
        await self.propose(5, 5, 6, epochs=(0, 1))
        await self.propose(5, 5, epochs=(0, 2))
        await self.beat(6, want_fence=True)
        await self.propose(5, 5, 6, epochs=(0, 3))
        await self.beat(6)
        await self.propose(5, 5, 6, epochs=(0, 3))


def _directory(number: int) -> bytes:
    """An id; numbers below 100 are reserved."""
    return number.to_bytes(16, "big") if number < 100 else bytes([number]) * 16


_FLAGS: Final = ("is_caught_up", "is_fenced", "should_shut_down")


async def asking(address: str) -> Ask:
    """A way to ask the controller that listens there."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    header, answer_header = message("RequestHeader"), message("ResponseHeader")

    async def ask(key: ApiKey, version: int, body: Any) -> Any:
        head = header.cls(
            request_api_key=int(key), request_api_version=version, correlation_id=1, client_id="t"
        )
        frame = header.encode(head, 2) + request(key).encode(body, version)
        writer.write(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(await reader.readexactly(4), "big")
        data = await reader.readexactly(size)
        _, position = answer_header.decode(data, 1)
        return response(key).decode(data, version, position)[0]

    return ask


async def _record(address: str, cluster_id: str) -> list[str]:
    return await BrokerTalk(await asking(address), cluster_id).tell()


if __name__ == "__main__":
    found = asyncio.run(_record(*sys.argv[1:]))
    json.dump(found, sys.stdout, indent=1)
