"""Tidemark's nodes in a quorum: controllers, and brokers that are nothing else."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.quorum.controllers import Controller, run_to_end
from tests.support.quorum.quorum import Quorum


class TidemarkController(Controller):
    """One process of `tidemark start`."""

    kind = "tidemark"

    def format_command(self, *options: str) -> list[str]:
        config = str(self.config_file)
        return [
            *_TIDEMARK, "format", "--config", config,
            "--cluster-id", self.membership.cluster_id, *options,
        ]  # fmt: skip

    def start_command(self) -> list[str]:
        return [*_TIDEMARK, "start", "--config", str(self.config_file)]


SERVING = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
"""Of a node that serves clients."""


class TidemarkBroker(TidemarkController):
    """A process with `process.roles=broker`; its port is that of its clients."""

    def properties(self) -> dict[str, str]:
        own = {"process.roles": "broker", "listeners": f"PLAINTEXT://{self.address}"}
        return {**super().properties(), **SERVING, **own, **self.settings}

    async def format(self, *options: str) -> None:
        """Say nothing of who votes, as an operator does for a broker."""
        self.write_config()
        code, said = await run_to_end(self.format_command(*options))
        assert code == 0, said

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def broker_nodes(quorum: Quorum, *ids: int) -> AsyncIterator[list[TidemarkBroker]]:
    """Brokers beside controllers, started; none is left running."""
    made = [
        TidemarkBroker(one, quorum.directory / f"broker-{one}", quorum.membership) for one in ids
    ]
    try:
        await asyncio.gather(*(one.start() for one in made))
        yield made
    finally:
        for one in made:
            one.close()


_TIDEMARK = (sys.executable, "-m", "tidemark.cli")
