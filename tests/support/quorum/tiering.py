"""Brokers with a remote tier beside controllers, one store for all of them."""

import asyncio
import glob
import json
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.brokers.process import LOCAL_FS, free_ports
from tests.support.quorum.controllers import run_to_end
from tests.support.quorum.own_controllers import SERVING, TidemarkBroker, TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, until_asked

SWITCH = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": LOCAL_FS,
}
"""Of controllers, too: they judge the settings of topics by it."""
TIERS = {
    **SERVING,
    **SWITCH,
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "4",
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "200",
    "tidemark.remote.copy.max.ms": "5000",
    "tidemark.remote.delete.grace.ms": "1000",
}
SECRET = "cluster.secret"
STORE = "remote-tier"
TOPIC = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "segment.bytes": "1048576",
}
PATIENCE_S = 120


class TieringBroker(TidemarkBroker):
    """A process with `process.roles=broker` and a remote tier."""

    http_port: int

    def properties(self) -> dict[str, str]:
        cluster = self.directory.parent
        own = {
            "rsm.config.dir": str(cluster / STORE),
            "tidemark.cluster.secret.file": str(cluster / SECRET),
            "tidemark.http.listener": f"127.0.0.1:{self.http_port}",
        }
        return super().properties() | TIERS | own | self.settings

    def page(self, name: str) -> str:
        """What a page says, whatever its status; nothing where nobody listens."""
        try:
            url = f"http://127.0.0.1:{self.http_port}/{name}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()
        except OSError:
            return ""

    def health(self) -> dict[str, Any]:
        """The page `/health`, empty where nobody listens."""
        report: dict[str, Any] = json.loads(self.page("health") or "{}")
        return report

    @property
    def bootstrap(self) -> str:
        return self.address

    def local_segments(self, topic: str, partition: int = 0) -> list[int]:
        found = (self.logs / f"{topic}-{partition}").glob("*.log")
        return sorted(int(path.stem) for path in found)


def tiering_controllers(directory: Path, *, is_dynamic: bool = False) -> Quorum:
    """Three controllers, not started."""
    settings = {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "3000"}
    plan = Plan(TidemarkController, is_dynamic, has_links=False, settings=settings | SWITCH)
    return Quorum(directory, plan)


@asynccontextmanager
async def tiering_nodes(quorum: Quorum, *ids: int) -> AsyncIterator[list[TieringBroker]]:
    """Brokers with tiers beside controllers, started; none is left running."""
    made = [
        TieringBroker(one, quorum.directory / f"broker-{one}", quorum.membership) for one in ids
    ]
    for one in made:
        (one.http_port,) = free_ports(1)
    await made[0].format("--cluster-secret")
    try:
        await asyncio.gather(*(one.start() for one in made))
        yield made
    finally:
        for one in made:
            one.close()
            print(f"--- broker {one.node_id}\n{one.log_tail(100)}")


def remote_segments(quorum: Quorum, topic: str, partition: int = 0) -> list[int]:
    """Base offsets of the complete segments in the store, ascending."""
    root = quorum.directory / STORE
    found = glob.glob(f"**/{topic}-*/{partition}/*.manifest", root_dir=root, recursive=True)
    return sorted(int(Path(path).name.split("-")[0]) for path in found)


async def until_only_active_is_local(
    quorum: Quorum, node: TieringBroker, topic: str, partition: int = 0
) -> None:
    await until_asked(
        lambda: (
            len(node.local_segments(topic, partition)) == 1
            and len(remote_segments(quorum, topic, partition)) > 1
        ),
        f"all but the active segment of {topic}-{partition} are remote, and local no more",
        deadline_s=PATIENCE_S,
    )


async def audited(node: TieringBroker, *options: str) -> str:
    """What the audit says of the store, by a broker; it must find nothing."""
    code, said = await run_to_end([
        sys.executable, "-m", "tidemark.cli", "remote", "audit",
        "--config", str(node.config_file), "--bootstrap-server", node.address, *options,
    ])  # fmt: skip
    assert code == 0, said
    return said
