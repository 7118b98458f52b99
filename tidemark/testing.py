"""Names as testcontainers has them, so that a suite changes one import to be without Docker.

from testcontainers.kafka import KafkaContainer   # before
from tidemark.testing import KafkaContainer       # after
"""

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tidemark.embedded.broker import Broker

__all__ = ["KafkaContainer"]

_ENV: Final = "KAFKA_"
_BROKERS_OWN: Final = re.compile(
    r"listeners|advertised\.|listener\.security\.protocol\.map|inter\.broker\.listener\.name"
    r"|controller\.|process\.roles|broker\.id|node\.id|zookeeper\.|log\.dirs?$|metadata\.log\.dir$"
)
"""Where a container's broker listens, where its data lie and who it is: here the broker decides."""


class KafkaContainer:
    """A `tidemark.Broker` under the names of testcontainers' KafkaContainer.

    What is said of images, networks, volumes and commands changes nothing. What needs a container,
    such as `exec`, is an AttributeError that says so.

    Attributes:
        broker: for all that a container cannot do: `advance`, `tier`, `kill`, `pause`.
        env: variables of the container; KAFKA_LOG_RETENTION_MS is the setting log.retention.ms.
        image, port: as they were given.
    """

    def __init__(
        self,
        image: str = "",
        port: int = 9093,
        *,
        env: Mapping[str, object] | None = None,
        **kwargs: Any,
    ) -> None:
        """Take what a KafkaContainer takes; all but `env` changes nothing here."""
        self.env: dict[str, object] = dict(env or {})
        self.image, self.port = image, port
        self._host_port: int | None = None
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

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"KafkaContainer.{name}: there is no container behind this one, but a tidemark.Broker:"
            " see its attribute `broker`, such as broker.admin() for Kafka's command line tools"
        )

    # -- what it is to be

    def with_env(self, key: str, value: object) -> Self:
        """Set a variable: KAFKA_LOG_RETENTION_MS is the setting log.retention.ms."""
        self.env[key] = value
        return self

    def with_envs(self, **variables: object) -> Self:
        """Set several variables, as `with_env`."""
        self.env.update(variables)
        return self

    def with_env_file(self, env_file: str | PathLike[str]) -> Self:
        """Set variables of a file, a line NAME=value each."""
        for line in Path(env_file).read_text(encoding="utf-8").splitlines():
            name, sign, value = line.strip().removeprefix("export ").partition("=")
            if sign and not name.startswith("#"):
                self.with_env(name.strip(), value.strip().strip("'\""))
        return self

    def with_bind_ports(self, container: int | str, host: int | str | None = None) -> Self:
        """Listen on the port `host`; None: on a free one."""
        self._host_port = None if host is None else int(host)
        return self

    def with_exposed_ports(self, *ports: object) -> Self:
        """Change nothing: a free port is taken, see `get_bootstrap_server`."""
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

    def with_network(self, network: object) -> Self:
        """Change nothing: the broker is on this machine."""
        return self

    def with_network_aliases(self, *aliases: str) -> Self:
        """Change nothing: the broker is on this machine."""
        return self

    def with_command(self, command: object) -> Self:
        """Change nothing: there is no container."""
        return self

    def with_volume_mapping(self, host: object, container: str, mode: str = "ro") -> Self:
        """Change nothing: what a container would see of this machine means nothing here."""
        return self

    def with_tmpfs_mount(self, container_path: str, size: str | None = None) -> Self:
        """Change nothing: the data lie in a temporary directory."""
        return self

    def with_kwargs(self, **kwargs: object) -> Self:
        """Change nothing: there is no Docker to be told."""
        return self

    def maybe_emulate_amd64(self) -> Self:
        """Change nothing: there is no image."""
        return self

    def waiting_for(self, strategy: object) -> Self:
        """Change nothing: `start` waits until clients are served."""
        return self

    # -- lifecycle

    def start(self, timeout: float = 60) -> Self:
        """Start the broker and return when clients are served; one that runs continues.

        Raises:
            BrokerStartError: it does not start within `timeout` seconds.
        """
        if not self.broker.is_running:
            self.broker.close()
            settings = _settings_of(self.env)
            if self._host_port is not None:
                settings["listeners"] = (
                    f"PLAINTEXT://127.0.0.1:{self._host_port},CONTROLLER://127.0.0.1:1"
                )
            self.broker = Broker(settings=settings, start_timeout_s=timeout).start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """End the broker; its data are removed."""
        self.broker.close()

    # -- facts

    def get_bootstrap_server(self) -> str:
        """host:port for clients."""
        return self.broker.bootstrap_servers

    def get_container_host_ip(self) -> str:
        """The host of `get_bootstrap_server`."""
        return self.broker.bootstrap_servers.rpartition(":")[0]

    def get_exposed_port(self, port: int) -> int:
        """The port of `get_bootstrap_server`, whatever port it had in a container."""
        return int(self.broker.bootstrap_servers.rpartition(":")[2])

    def get_logs(self) -> tuple[bytes, bytes]:
        """The broker's log so far, and nothing: as stdout and stderr of a container."""
        return self.broker.log_file.read_bytes(), b""


def _settings_of(env: Mapping[str, object]) -> dict[str, str]:
    """Settings of a container's variables, by the rule of Kafka's images."""
    found = {}
    for key, value in env.items():
        if key.startswith(_ENV):
            # ___ is a dash, __ an underscore, _ a dot
            words = [part.split("__") for part in key.removeprefix(_ENV).lower().split("___")]
            name = "-".join("_".join(one.replace("_", ".") for one in part) for part in words)
            if not _BROKERS_OWN.match(name):
                found[name] = str(value)
    return found
