"""Names as testcontainers has them, so that a suite changes one import to be without Docker.

from testcontainers.kafka import KafkaContainer   # before
from tidemark.testing import KafkaContainer       # after
"""

from types import TracebackType
from typing import Any, Final, Self

from tidemark.embedded.broker import Broker

__all__ = ["KafkaContainer"]

_ENV: Final = "KAFKA_"
_OF_CONTAINERS: Final = frozenset(
    {
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "controller.listener.names",
        "controller.quorum.voters",
        "process.roles",
        "broker.id",
        "node.id",
        "zookeeper.connect",
    }
)
"""Where a container's broker listens and who it is: here the broker decides."""


class KafkaContainer:
    """A `tidemark.Broker` under the names of testcontainers' KafkaContainer.

    Attributes:
        broker: for all that a container cannot do: `advance`, `tier`, `kill`, `pause`.
    """

    def __init__(self, image: str = "", port: int = 9093, **kwargs: Any) -> None:
        """Take what a KafkaContainer takes; image, port and the rest change nothing here."""
        self._settings: dict[str, str] = {}
        self.port = port
        self.broker = Broker()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def with_env(self, key: str, value: object) -> Self:
        """Set a key of the broker: KAFKA_LOG_RETENTION_MS is log.retention.ms."""
        name = key.removeprefix(_ENV).lower().replace("_", ".")
        if key.startswith(_ENV) and name not in _OF_CONTAINERS:
            self._settings[name] = str(value)
        return self

    def with_envs(self, **variables: object) -> Self:
        """Set several keys, as `with_env`."""
        for key, value in variables.items():
            self.with_env(key, value)
        return self

    def with_kraft(self) -> Self:
        """Change nothing: there is no ZooKeeper here."""
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        """Change nothing: the broker draws its own cluster id."""
        return self

    def with_name(self, name: str) -> Self:
        """Change nothing: there is no container."""
        return self

    def with_exposed_ports(self, *ports: object) -> Self:
        """Change nothing: a free port is taken, see `get_bootstrap_server`."""
        return self

    def start(self, timeout: float = 60) -> Self:
        """Start the broker and return when clients are served.

        Raises:
            BrokerStartError: it does not start within `timeout` seconds.
        """
        self.broker = Broker(settings=self._settings, start_timeout_s=timeout).start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """End the broker; its data are removed."""
        self.broker.close()

    def get_bootstrap_server(self) -> str:
        """host:port for clients."""
        return self.broker.bootstrap_servers

    def get_container_host_ip(self) -> str:
        """The host of `get_bootstrap_server`."""
        return self.broker.bootstrap_servers.rpartition(":")[0]

    def get_exposed_port(self, port: int) -> int:
        """The port of `get_bootstrap_server`, whatever port it had in a container."""
        return int(self.broker.bootstrap_servers.rpartition(":")[2])
