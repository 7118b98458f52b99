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

    async def create(self, name: str, *brokers: int) -> None:
        """Somebody makes a topic of one partition."""
        cls = message("CreateTopicsRequest").cls
        assignment = cls.Topics.Assignments(partition_index=0, broker_ids=list(brokers))
        topic = cls.Topics(
            name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        answer = await self._ask(ApiKey.CREATE_TOPICS, 7, cls(topics=[topic], timeout_ms=5_000))
        self._note(f"topic {name} on {list(brokers)}", str(answer.topics[0].error_code))

    def _note(self, said: str, heard: str) -> None:
        self.lines.append(f"{said} -> {heard.strip()}")

    async def tell(self) -> list[str]:
        """Go through all steps."""
        await self._registrations()
        await self._heartbeats()
        await self._shutdowns()
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
