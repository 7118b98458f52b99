"""The secret of a cluster: one line of text in a file, the same on all its brokers.

The remote tiers authenticate with it at the brokers (`broker.process.tier_listener`). A holder of
the secret may write `__remote_log_metadata`, and so hide or delete tiered data. It is in no log, no
setting and no message.
"""

from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.config.rules import CLUSTER_SECRET_KEY
from metadata_topic.raft.voters import VoterSet
from runtime.disk import Disk
from runtime.rng import Rng

CHARACTERS_MIN: Final = 43
"""32 bytes in base64, without padding."""
_FILE_BYTES_MAX: Final = 4_096
_OPEN_TO_OTHERS: Final = 0o027
_DRAWN: Final = 3
"""Ids of 122 random bits each."""
_WAY_OUT: Final = (
    "draw one with `tidemark format --cluster-secret` on one node, and copy the file to the others"
)


def read_cluster_secret(config: BrokerConfig, disk: Disk) -> str | None:
    """Read the secret; None where no file is set, or this broker has no tier.

    Raises:
        ConfigError: The file is missing, other users may read or change it, or it has no secret.
    """
    name = config.tidemark_cluster_secret_file
    if not name or not config.remote_log_storage_system_enable:
        return None
    path = Path(name)
    try:
        permissions = disk.permissions(path)
        data = disk.read_file(path) if disk.size(path) <= _FILE_BYTES_MAX else b""
    except FileNotFoundError:
        raise ConfigError(CLUSTER_SECRET_KEY, name, f"must exist: {_WAY_OUT}") from None
    except OSError as error:
        raise ConfigError(CLUSTER_SECRET_KEY, name, f"must be readable: {error}") from error
    if permissions & _OPEN_TO_OTHERS:
        raise ConfigError(
            CLUSTER_SECRET_KEY,
            name,
            f"must not be readable by others, nor writable by its group (it is {permissions:03o}): "
            f"chmod 600 {name}, or 640; if others may have read it, {_WAY_OUT}",
        )
    secret = data.removesuffix(b"\n").removesuffix(b"\r")
    if len(secret) < CHARACTERS_MIN or any(not 0x21 <= byte <= 0x7E for byte in secret):
        raise ConfigError(
            CLUSTER_SECRET_KEY,
            name,
            f"must hold one line of at least {CHARACTERS_MIN} characters of ASCII without a space, "
            f"such as 32 random bytes in base64: remove the file and {_WAY_OUT}",
        )
    return secret.decode()


def check_secret_among_several(config: BrokerConfig, voters: VoterSet) -> None:
    """Refuse a tier without the cluster's secret if there are several nodes.

    Raises:
        ConfigError: With the setting and the remedy.
    """
    if config.remote_log_storage_system_enable and not config.tidemark_cluster_secret_file:
        raise ConfigError(
            CLUSTER_SECRET_KEY,
            "",
            f"must name the file with the cluster's secret, since node.id={config.node_id} has a "
            f"remote tier and other nodes stand beside it (controllers: {list(voters.ids)}): the "
            f"tiers of all brokers authenticate themselves by it; {_WAY_OUT}",
        )


def draw_cluster_secret(path: Path, disk: Disk, rng: Rng) -> bool:
    """Make the file with a new secret, readable for its owner only; False if it exists."""
    drawn = urlsafe_b64encode(b"".join(rng.uuid() for _ in range(_DRAWN)))
    disk.make_dirs(path.parent)
    try:
        disk.create_private(path, drawn + b"\n")
    except FileExistsError:
        return False
    return True
