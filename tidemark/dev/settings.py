"""The configuration of `tidemark dev`: a remote tier to watch, everything quick.

Intervals are short so that copying and local expiry can be watched; they are not for production.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

HOST: Final = "127.0.0.1"
HTTP_PORT: Final = 9464
CONTROLLERS_MAX: Final = 5
BROKER_ID: Final = 11
"""Beside controllers, whose ids are 1 to 5."""
_TIER_BESIDE_A_QUORUM: Final = "false"
_MEBIBYTE: Final = 1 << 20


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
        port: of the listener for clients; the controller's is the next one.
        s3: the remote tier; None for a directory beside the log.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{port + 1}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:{port + 1}",
        "log.dirs": str(data / "logs"),
        "tidemark.http.listener": f"{HOST}:{HTTP_PORT}",
        # one broker: internal topics cannot have more than one replica
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        "remote.log.storage.system.enable": "true",
        **(_bucket(s3) if s3 else _directory(data / "remote-tier")),
        # short intervals: what takes minutes in production takes seconds here
        "log.segment.bytes": str(_MEBIBYTE),
        "log.retention.check.interval.ms": "1000",
        "log.initial.task.delay.ms": "500",
        "log.segment.delete.delay.ms": "1000",
        "remote.log.manager.task.interval.ms": "1000",
        "remote.log.manager.task.retry.backoff.max.ms": "5000",
        "tidemark.remote.copy.max.ms": "30000",
        "tidemark.remote.delete.grace.ms": "5000",
    }


def dev_controller_settings(data: Path, port: int, count: int, node_id: int) -> dict[str, str]:
    """Return the entries of a server.properties of one controller of several.

    Args:
        data: directory of the cluster.
        port: of the broker; the controllers' follow, then the broker's page, then theirs.
        count: controllers in the quorum.
        node_id: of this one, 1 to `count`.
    """
    return {
        "process.roles": "controller",
        "node.id": str(node_id),
        "listeners": f"CONTROLLER://{HOST}:{port + node_id}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": _voters(port, count),
        "log.dirs": str(data / f"controller-{node_id}" / "metadata"),
        "tidemark.http.listener": f"{HOST}:{port + count + 1 + node_id}",
        # it judges the settings of topics by these
        "remote.log.storage.system.enable": _TIER_BESIDE_A_QUORUM,
    }


def dev_broker_settings(
    data: Path, port: int, count: int, s3: S3Bucket | None = None
) -> dict[str, str]:
    """Return the entries of a server.properties of a broker beside `count` controllers.

    Args:
        data: directory of the cluster.
        port: as of `dev_controller_settings`.
        count: controllers in the quorum.
        s3: as of `dev_settings`.
    """
    entries = dev_settings(data / "broker", port, s3) | {
        "process.roles": "broker",
        "node.id": str(BROKER_ID),
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.quorum.voters": _voters(port, count),
        "tidemark.http.listener": f"{HOST}:{port + count + 1}",
        "tidemark.cluster.secret.file": str(dev_secret_file(data)),
        "remote.log.storage.system.enable": _TIER_BESIDE_A_QUORUM,
    }
    del entries["controller.quorum.bootstrap.servers"]
    return entries


def dev_secret_file(data: Path) -> Path:
    """Where the secret of a cluster in `data` lies."""
    return data / "cluster.secret"


def _voters(port: int, count: int) -> str:
    return ",".join(f"{one}@{HOST}:{port + one}" for one in range(1, count + 1))


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
