"""A broker for tests that were written for a lone node, beside three controllers of its own."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

from tests.support.brokers.process import BrokerProcess
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum

SESSION = {"broker.heartbeat.interval.ms": "200", "broker.session.timeout.ms": "2000"}
"""Short: a killed broker is not taken back while the session of its last life lasts."""


class BrokerBesideControllers(BrokerProcess):
    """Is only a broker. Its controllers start with it for the first time, and end with `close`."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory, node_id=11, **options)
        validated_by = {
            name: text
            for name, text in super().properties().items()
            if name.startswith(("remote.log.storage.", "rsm.config.", "log.segment.bytes"))
        } | SESSION
        plan = Plan(TidemarkController, is_dynamic=False, has_links=False, settings=validated_by)
        self.quorum = Quorum(directory / "controllers", plan)

    def properties(self) -> dict[str, str]:
        own = {
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            **SESSION,
            "tidemark.cluster.secret.file": str(self.directory / "cluster.secret"),
        }
        return super().properties() | own | self.quorum.membership.settings()

    def format(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        cluster_id = self.quorum.membership.cluster_id
        return super().format("--cluster-id", cluster_id, "--cluster-secret", *arguments)

    def start(self, *, wait: bool = True) -> BrokerProcess:
        asyncio.run(self._start_controllers())
        return super().start(wait=wait)

    async def _start_controllers(self) -> None:
        stopped = [one for one in self.quorum.controllers.values() if not one.is_running]
        await asyncio.gather(*(one.start() for one in stopped))
        await self.quorum.leader()

    def close(self) -> None:
        super().close()
        for one in self.quorum.controllers.values():
            one.close()


ALONE_OR_BESIDE = {
    "params": [BrokerProcess, BrokerBesideControllers],
    "ids": ["alone", "beside a quorum"],
}
"""Of a fixture, for tests that hold for a lone node and for a broker of a cluster."""
