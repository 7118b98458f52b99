"""Brokers that are nothing but a registration and heartbeats."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.kafka.broker_talk import FEATURES
from tests.support.quorum.controllers import CLUSTER_ID
from tests.support.quorum.node_connection import NO_ANSWER, NodeConnection
from tests.support.quorum.quorum import Quorum

BROKERS = (101, 102, 103)
EVERY_S = 0.3
PATIENCE_S = 2.0
_FAR = 10**9  # it has read all metadata
_AGAIN = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


class KeptBroker:
    """One broker: registers where it must, and sends heartbeats.

    Attributes:
        epoch: that of the newest registration that was acknowledged; -1 before.
        incarnation: of that registration.
    """

    def __init__(self, quorum: Quorum, broker_id: int, rng: Random) -> None:
        self.broker_id = broker_id
        self.epoch = -1
        self.incarnation = b""
        self.is_fenced = True
        self._quorum = quorum
        self._rng = rng
        self._talk: NodeConnection | None = None

    async def run(self) -> None:
        """Until it is cancelled."""
        incarnation = self._rng.randbytes(16)
        while True:
            if self.epoch < 0:
                await self._register(incarnation)
            elif await self._beat() in _AGAIN:
                self.epoch, incarnation = -1, self._rng.randbytes(16)
                continue
            await asyncio.sleep(EVERY_S)

    async def _register(self, incarnation: bytes) -> None:
        answer = await self._ask(
            ApiKey.BROKER_REGISTRATION, registration(self.broker_id, incarnation)
        )
        if answer is not None and answer.error_code == ErrorCode.NONE:
            self.epoch, self.incarnation = answer.broker_epoch, incarnation

    async def _beat(self) -> int:
        fields = {
            "broker_id": self.broker_id,
            "broker_epoch": self.epoch,
            "current_metadata_offset": _FAR,
        }
        answer = await self._ask(ApiKey.BROKER_HEARTBEAT, fields)
        if answer is None:
            return ErrorCode.NONE
        if answer.error_code == ErrorCode.NONE:
            self.is_fenced = answer.is_fenced
        return int(answer.error_code)

    async def _ask(self, api: ApiKey, fields: Mapping[str, Any]) -> Any:
        """Ask the active controller; None where there is no answer, or it is another."""
        if self._talk is None:
            claims = await self._quorum.claims()
            if not claims:
                return None
            self._talk = self._quorum.talk(claims[0].node_id)
        try:
            answer = await self._talk.ask(api, dict(fields), timeout_s=PATIENCE_S)
        except NO_ANSWER:
            answer = None
        if answer is None or answer.error_code == ErrorCode.NOT_CONTROLLER:
            self._talk.close()
            self._talk = None
            return None
        return answer


def registration(broker_id: int, incarnation: bytes) -> dict[str, Any]:
    """The fields of a BrokerRegistration of version 4."""
    return {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": incarnation,
        "listeners": [{"name": "PLAINTEXT", "host": "localhost", "port": 9092}],
        "features": [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, (low, high) in FEATURES.items()
        ],
        "log_dirs": [bytes([broker_id]) * 16],
    }


async def registered(
    quorum: Quorum, seed: int
) -> tuple[list[KeptBroker], list[asyncio.Task[None]]]:
    """Brokers that have no fence around them, and the tasks that keep them so."""
    brokers = [KeptBroker(quorum, one, Random(f"{seed}-{one}")) for one in BROKERS]
    tasks = [asyncio.create_task(one.run()) for one in brokers]
    async with asyncio.timeout(60):
        while any(one.is_fenced for one in brokers):  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.02)
    return brokers, tasks


async def until_registered(quorum: Quorum, seed: int) -> None:
    """Once a controller takes decisions and commits them; the brokers go away again."""
    _, tasks = await registered(quorum, seed)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
