"""The configuration of `tidemark dev`: a remote tier to watch, everything quick.

Intervals are short so that copying and local expiry can be watched; they are not for production.
Segments are as large as Kafka's: no record is refused that `max.message.bytes` of its topic allows.
A topic that is to be watched has small ones of its own.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

HOST: Final = "127.0.0.1"
HTTP_ABOVE: Final = 372
"""The distance of a lone node's port of the pages from that for clients: 9464 above 9092."""
PORT_MAX: Final = 65_535 - HTTP_ABOVE
CONTROLLERS_MAX: Final = 5
BROKER_ID: Final = 11
"""Of the first broker beside controllers, whose ids are 1 to 5; others follow it."""
BROKERS_MAX: Final = 5
COPIES: Final = 3
"""Of a partition, where there are as many brokers."""
PROPERTIES: Final = "server.properties"
"""In the directory of a lone node: what it was last started with, for commands to read."""
LOG: Final = "server.log"
"""In the directory of each node: what it has said."""


@dataclass(frozen=True, slots=True)
class S3Bucket:
    """A bucket of an S3-compatible store, as remote tier."""

    endpoint_url: str
    bucket: str

    @classmethod
    def parse(cls, text: str) -> "S3Bucket":
        """Read `http://HOST:PORT/BUCKET`.

        Raises:
            ValueError: it is not such an address.
        """
        parts = urlsplit(text)
        bucket = parts.path.strip("/")
        if parts.scheme not in ("http", "https") or not parts.netloc or not bucket or "/" in bucket:
            raise ValueError(f"{text!r} is not of the form http://HOST:PORT/BUCKET")
        return cls(f"{parts.scheme}://{parts.netloc}", bucket)


def dev_settings(data: Path, port: int, s3: S3Bucket | None = None) -> dict[str, str]:
    """Return the entries of a server.properties for development.

    Args:
        data: directory for the log, and for the remote tier where no bucket is given.
        port: of the listener for clients; the controller's is the next one, that of the pages
            `HTTP_ABOVE` above it.
        s3: the remote tier; None for a directory beside the log.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{port + 1}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:{port + 1}",
        "log.dirs": str(data / "logs"),
        "tidemark.http.listener": f"{HOST}:{port + HTTP_ABOVE}",
        # one broker: internal topics cannot have more than one replica
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        # and one partition of each is enough for it
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "remote.log.storage.system.enable": "true",
        **(_bucket(s3) if s3 else _directory(data / "remote-tier")),
        # short intervals: what takes minutes in production takes seconds here
        "log.retention.check.interval.ms": "1000",
        "log.initial.task.delay.ms": "500",
        "log.segment.delete.delay.ms": "1000",
        "remote.log.manager.task.interval.ms": "1000",
        "remote.log.manager.task.retry.backoff.max.ms": "5000",
        "tidemark.remote.copy.max.ms": "30000",
        "tidemark.remote.delete.grace.ms": "5000",
    }


@dataclass(frozen=True, slots=True)
class ClusterPorts:
    """Where the nodes of a cluster listen.

    Attributes:
        broker: for clients; of the first broker.
        controllers: of controller 1 and those that follow.
        pages: of the brokers, then of the controllers; none: there are no pages.
        others: for clients of the other brokers.
    """

    broker: int
    controllers: tuple[int, ...]
    pages: tuple[int, ...] = ()
    others: tuple[int, ...] = ()

    @classmethod
    def in_a_row(cls, port: int, count: int, brokers: int = 1) -> "ClusterPorts":
        """Those of the brokers, of `count` controllers, and of the pages."""
        ports = range(port, port + 2 * (count + brokers))
        controllers, pages = ports[brokers : brokers + count], ports[brokers + count :]
        return cls(port, tuple(controllers), tuple(pages), tuple(ports[1:brokers]))

    def voters(self) -> str:
        """The voters in the form of `controller.quorum.voters`: ID@HOST:PORT, comma separated."""
        return ",".join(f"{one}@{HOST}:{port}" for one, port in enumerate(self.controllers, 1))

    def copies(self) -> dict[str, str]:
        """How many replicas partitions have by default, and how many of them acks=all needs."""
        count = min(COPIES, 1 + len(self.others))
        if count == 1:
            return {}
        factors = (
            "default.replication.factor",
            "offsets.topic.replication.factor",
            "transaction.state.log.replication.factor",
            "share.coordinator.state.topic.replication.factor",
            "rlmm.config.remote.log.metadata.topic.replication.factor",
        )
        needed = (
            "min.insync.replicas",
            "transaction.state.log.min.isr",
            "share.coordinator.state.topic.min.isr",
            "rlmm.config.remote.log.metadata.topic.min.isr",
        )
        # One copy may be lost at a time.
        return dict.fromkeys(factors, str(count)) | dict.fromkeys(needed, str(count - 1))

    def page(self, index: int) -> dict[str, str]:
        """The setting of a page: the brokers' come first."""
        return {"tidemark.http.listener": f"{HOST}:{self.pages[index]}"} if self.pages else {}


def dev_controller_settings(data: Path, ports: ClusterPorts, node_id: int) -> dict[str, str]:
    """Return the entries of a server.properties of one controller of several.

    Args:
        data: directory of the cluster.
        ports: of all nodes.
        node_id: of this one, from 1 on.
    """
    return {
        "process.roles": "controller",
        "node.id": str(node_id),
        "listeners": f"CONTROLLER://{HOST}:{ports.controllers[node_id - 1]}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ports.voters(),
        "log.dirs": str(data / f"controller-{node_id}" / "metadata"),
        # it validates the settings of topics by these
        "remote.log.storage.system.enable": "true",
        **ports.copies(),
        **ports.page(len(ports.others) + node_id),
    }


def dev_broker_settings(
    data: Path, ports: ClusterPorts, s3: S3Bucket | None = None, number: int = 0
) -> dict[str, str]:
    """Return the entries of a server.properties of a broker beside the controllers.

    Args:
        data: directory of the cluster.
        ports: of all nodes.
        s3: as of `dev_settings`.
        number: of the broker, from 0 on.
    """
    port = (ports.broker, *ports.others)[number]
    entries = dev_settings(data / broker_name(number), port, s3) | {
        "process.roles": "broker",
        "node.id": str(BROKER_ID + number),
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.quorum.voters": ports.voters(),
        "tidemark.cluster.secret.file": str(dev_secret_file(data)),
    }
    for alone in ("controller.quorum.bootstrap.servers", "tidemark.http.listener"):
        del entries[alone]
    if ports.others and s3 is None:  # a tiered topic may lie on each of them
        entries |= _directory(data / "remote-tier")
    return entries | ports.copies() | ports.page(number)


def broker_name(number: int) -> str:
    """The name of a broker's directory."""
    return f"broker-{BROKER_ID + number}" if number else "broker"


def dev_secret_file(data: Path) -> Path:
    """Where the secret of a cluster in `data` lies."""
    return data / "cluster.secret"


def _directory(place: Path) -> dict[str, str]:
    return {
        "remote.log.storage.manager.class.name": (
            "rsm_plugins.local_fs:LocalFsRemoteStorageManager"
        ),
        "rsm.config.dir": str(place),
    }


def _bucket(s3: S3Bucket) -> dict[str, str]:
    return {
        "remote.log.storage.manager.class.name": "rsm_plugins.s3:S3RemoteStorageManager",
        "rsm.config.endpoint.url": s3.endpoint_url,
        "rsm.config.region": "us-east-1",
        "rsm.config.bucket": s3.bucket,
    }
