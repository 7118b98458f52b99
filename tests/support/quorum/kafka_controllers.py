"""Apache Kafka's controllers."""

import subprocess
from functools import cache

from tests.support.kafka.tools import PEERS
from tests.support.quorum.controllers import Controller


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
        "eligible.leader.replicas.version",
    )
