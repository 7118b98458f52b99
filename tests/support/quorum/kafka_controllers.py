"""Apache Kafka's controllers."""

import subprocess
from functools import cache
from pathlib import Path

from tests.support.kafka.tools import PEERS
from tests.support.quorum.controllers import Controller
from tests.support.quorum.quorum import Plan, Quorum


@cache
def kafka_jars() -> str:
    """The folder of Kafka's jars; fetched where they are not there yet."""
    done = subprocess.run(
        [str(PEERS / "kafka"), "fetch"], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


class KafkaController(Controller):
    """One JVM; ask `require_kafka_tools` before."""

    kind = "kafka"
    terminated = 143
    heap = "256m"
    features_off: tuple[str, ...] = ()

    def format_command(self, *options: str) -> list[str]:
        config = str(self.config_file)
        return self._java(
            "kafka.tools.StorageTool", "WARN",
            "format", "-t", self.membership.cluster_id, "-c", config, *options,
        )  # fmt: skip

    async def format(self, *options: str) -> None:
        """Without the levels that brokers of Tidemark do not serve, where the kind says so."""
        if not options and self.membership.is_dynamic:
            options = ("--initial-controllers", self.membership.initial_controllers)
        off = [word for name in self.features_off for word in ("--feature", f"{name}=0")]
        await super().format(*options, *off)

    def start_command(self) -> list[str]:
        return self._java("kafka.Kafka", "INFO", str(self.config_file))

    def _java(self, main: str, log_level: str, *arguments: str) -> list[str]:
        return [
            "java", f"-Xmx{self.heap}", "-XX:+UseG1GC",
            f"-Dlog4j2.configurationFile={PEERS / 'log4j2.properties'}",
            f"-Dpeer.log.level={log_level}", "-cp", f"{kafka_jars()}/*", main, *arguments,
        ]  # fmt: skip


class PlainKafkaController(KafkaController):
    """One of a cluster in which brokers of Tidemark may be."""

    features_off = (
        "group.version",
        "transaction.version",
        "share.version",
        "streams.version",
    )


class MixedQuorum(Quorum):
    """The last `kafkas` of its controllers are of Apache Kafka, whatever the plan says."""

    def __init__(self, directory: Path, plan: Plan, *, kafkas: int) -> None:
        self._first_kafka = plan.count - kafkas + 1
        super().__init__(directory, plan)

    def made(self, node_id: int, name: str = "") -> Controller:
        if node_id < self._first_kafka:
            return super().made(node_id, name)
        place = self.directory / (name or f"controller-{node_id}")
        return PlainKafkaController(node_id, place, self.membership, self.plan.settings)


class KafkaBroker(KafkaController):
    """A process with `process.roles=broker`; its port is that of its clients."""

    def properties(self) -> dict[str, str]:
        own = {
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{self.address}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
        }
        return super().properties() | own | self.settings

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"
