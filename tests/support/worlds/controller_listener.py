"""A controllers' listener without sockets: its handlers over a naive quorum."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.handlers.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from broker.handlers.broker_heartbeat import BrokerHeartbeatHandler
from broker.handlers.broker_registration import BrokerRegistrationHandler
from broker.handlers.controllers.alter_partition import AlterPartitionHandler
from broker.handlers.controllers.changes import creation_without_broker
from broker.handlers.controllers.controller_registration import ControllerRegistrationHandler
from broker.handlers.controllers.producer_ids import AllocateProducerIdsHandler
from broker.handlers.controllers.replica_directories import AssignReplicasToDirsHandler
from broker.handlers.create_topics import CreateTopicsHandler
from broker.handlers.delete_topics import DeleteTopicsHandler
from broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from broker.handlers.list_partition_reassignments import ListPartitionReassignmentsHandler
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import ClusterView
from kafka_protocol.wire.codec import message, request, response
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.quorum.active.broker_control import BrokerControl
from metadata_topic.quorum.active.decisions import Decide, ignore_place
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS, outcome_of
from tests.support.worlds.admin import SETTINGS
from tests.support.worlds.naive_quorum import PLAIN, NaiveQuorum

SESSION_MS, BEAT_MS = 9_000, 2_000
R = TypeVar("R")


class Listener:
    """A controller's handlers over a naive quorum."""

    def __init__(self, log_dir: Path) -> None:
        self.quorum = NaiveQuorum(replace(PLAIN, append_linger_ms=3))
        loop = self.quorum.loop
        self.control = control = BrokerControl(
            loop, self.quorum.world, cluster_id="cluster", session_timeout_ms=SESSION_MS
        )
        self.registration = BrokerRegistrationHandler(control)
        self.heartbeat = BrokerHeartbeatHandler(control, heartbeat_interval_ms=BEAT_MS)
        config, _ = BrokerConfig.load(SETTINGS | {"log.dirs": str(log_dir)})
        live = LiveConfig(config, lambda: loop.image)
        creation = creation_without_broker(self.submit, live, self.quorum.ports.rng, control)
        cluster = ClusterView(1, "cluster", lambda: loop.image)
        self.create = CreateTopicsHandler(creation, live)
        self.delete = DeleteTopicsHandler(cluster, self.submit, enabled=True)
        self.producer_ids = AllocateProducerIdsHandler(self.submit)
        self.controllers = ControllerRegistrationHandler(self.submit)
        self.directories = AssignReplicasToDirsHandler(self.submit, control.election_defaults)
        self.isr = AlterPartitionHandler(self.submit, control.election_defaults)
        self.alter = IncrementalAlterConfigsHandler(self.submit, live)
        self.reassign = AlterPartitionReassignmentsHandler(creation, control.election_defaults)
        self.reassignments = ListPartitionReassignmentsHandler(self.submit)
        self.quorum.elect()

    async def submit(
        self,
        decide: Decide[R],
        *,
        timeout_ms: int = DECISION_TIMEOUT_MS,
        placed: Callable[[int], None] = ignore_place,
    ) -> R:
        loop = self.quorum.loop
        return await outcome_of(
            lambda done: loop.submit(decide, done, timeout_ms=timeout_ms, placed=placed)
        )

    async def ask(
        self, handler: DecodedHandler, asked: Any, version: int | None = None, *, ms: int = 1
    ) -> Any:
        """Send a request through its codec; time passes until the answer is there."""
        chosen = handler.versions.last if version is None else version
        key = handler.api_key
        decoded, _ = request(key).decode(request(key).encode(asked, chosen), chosen)
        context = RequestContext(key, chosen, 1, "test", "CONTROLLER", ("127.0.0.1", 1), 0)
        task = asyncio.ensure_future(handler.handle(context, decoded))
        for _ in range(5_000):
            await asyncio.sleep(0)
            if task.done():
                break
            self.quorum.run(ms)
        answer = await task
        return response(key).decode(response(key).encode(answer, chosen), chosen)[0]

    async def register(self, version: int = 4, *, life: int = 1, **changes: Any) -> Any:
        cls = message("BrokerRegistrationRequest").cls
        fields = {
            "broker_id": 1,
            "cluster_id": "cluster",
            "incarnation_id": bytes([life]) * 16,
            "listeners": [cls.Listeners(name="PLAINTEXT", host="h", port=9092)],
            "features": [
                cls.Features(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            "rack": "r",
            "log_dirs": [b"d" * 16] if version >= 2 else [],
        }
        return await self.ask(self.registration, cls(**(fields | changes)), version)

    async def beat(self, epoch: int, *, version: int = 1, offset: int = 10**6, **said: Any) -> Any:
        cls = message("BrokerHeartbeatRequest").cls
        asked = cls(broker_id=1, broker_epoch=epoch, current_metadata_offset=offset, **said)
        return await self.ask(self.heartbeat, asked, version, ms=50)
