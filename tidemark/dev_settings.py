"""The configuration of `tidemark dev`: one node, a directory as remote tier, everything quick.

Intervals are short so that copying and local expiry can be watched; they are not for production.
"""

from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
HTTP_PORT: Final = 9464
_MEBIBYTE: Final = 1 << 20


def dev_settings(data: Path, port: int) -> dict[str, str]:
    """Return the entries of a server.properties for development.

    Args:
        data: directory for the log and the remote tier.
        port: of the listener for clients; the controller's is the next one.
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
        # the remote tier: a directory beside the log
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": (
            "rsm_plugins.local_fs:LocalFsRemoteStorageManager"
        ),
        "rsm.config.dir": str(data / "remote-tier"),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
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
