"""Opens the storage plugin that a cluster's brokers use, in the tool's own process."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker.config import properties
from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.config.keys_tidemark import TIDEMARK_KEYS
from kafka_client.blocking import ClusterError
from kafka_protocol.errors import TidemarkError
from rsm_plugins.api import RemoteStorageError, RemoteStorageManager
from rsm_plugins.loader import load_storage_manager
from rsm_plugins.settings import PREFIX
from tidemark.node_files.loading import load, parse_overrides

_FROM_BROKER = {"node.id": "0", "cluster.id": "tidemark-rsm-check"}

_COPY_MAX = "tidemark.remote.copy.max.ms"
_CLASS = "remote.log.storage.manager.class.name"


class PluginError(TidemarkError):
    """The plugin cannot be loaded or configured: nothing could be asked of it."""


def settings_of(file: Path | None, pairs: Iterable[str]) -> dict[str, str]:
    """Settings by name, `rsm.config.` removed.

    Args:
        file: properties; where some begin with `rsm.config.` (a server.properties), only those.
        pairs: `key=value` each; they win.

    Raises:
        ConfigError: a pair is none. OSError: the file cannot be read.
    """
    entries: dict[str, str] = {}
    if file is not None:
        entries = properties.parse(properties.decode(file.read_bytes()))
        if any(key.startswith(PREFIX) for key in entries):
            entries = {key: value for key, value in entries.items() if key.startswith(PREFIX)}
    entries |= parse_overrides(pairs, option="--config")
    return {key.removeprefix(PREFIX): value for key, value in entries.items()}


def make_plugin(class_name: str, settings: Mapping[str, str]) -> RemoteStorageManager:
    """Load and configure a plugin; what it raises continues as it is."""
    manager = load_storage_manager(class_name)
    manager.configure({**_FROM_BROKER, **settings})
    return manager


def make_first_plugin(class_name: str, settings: Mapping[str, str]) -> RemoteStorageManager:
    """Make a plugin to show whether class and settings are right.

    Raises:
        PluginError: with the message for the user.
    """
    try:
        return make_plugin(class_name, settings)
    except (ValueError, RemoteStorageError) as e:
        raise PluginError(str(e)) from e
    except Exception as e:  # a plugin of somebody else may raise anything
        raise PluginError(f"{class_name}: cannot be configured: {e!r}") from e


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Which plugin, with which settings (prefix removed), and the cluster's longest copy.

    Attributes:
        config: the file's; None: no file was given.
    """

    class_name: str
    settings: Mapping[str, str]
    copy_max_ms: int
    config: BrokerConfig | None = None


def storage_settings(
    config_file: Path | None,
    class_name: str | None,
    pairs: Iterable[str],
    copy_max_ms: int | None,
) -> StorageSettings:
    """Take them from a server.properties, from the command line, or from both.

    Args:
        config_file: a broker's configuration.
        class_name: replaces the file's.
        pairs: `key=value` each, without the prefix; replace the file's.
        copy_max_ms: replaces the file's.

    Raises:
        ConfigError: the file is wrong, or no plugin is named.
    """
    settings: dict[str, str] = {}
    longest = int(next(key for key in TIDEMARK_KEYS if key.name == _COPY_MAX).default or 0)
    config = None
    if config_file is not None:
        config = load(config_file, (), list_without_effect=False)
        settings.update(config.rsm_settings)
        class_name = class_name or config.remote_log_storage_manager_class_name
        longest = config.tidemark_remote_copy_max_ms
    if not class_name:
        raise ConfigError(_CLASS, None, "give it by --config or --storage-class")
    settings.update(parse_overrides(pairs, option="--storage-config"))
    longest = longest if copy_max_ms is None else copy_max_ms
    return StorageSettings(class_name, settings, longest, config)


@contextmanager
def opened(found: StorageSettings, cluster_id: str) -> Iterator[RemoteStorageManager]:
    """The plugin, configured.

    Raises:
        PluginError: class or settings are wrong, or the store cannot be used.
        ClusterError: in place of a RemoteStorageError of the block.
    """
    settings = {**found.settings, "cluster.id": cluster_id}
    with closing(make_first_plugin(found.class_name, settings)) as storage:
        try:
            yield storage
        except RemoteStorageError as error:
            raise ClusterError(f"the store failed: {error}") from error
