"""Makes the plugin that a command line names, with the settings that it gives."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from broker.config import properties
from kafka_protocol.errors import TidemarkError
from rsm_plugins.api import RemoteStorageError, RemoteStorageManager
from rsm_plugins.loader import load_storage_manager
from rsm_plugins.settings import PREFIX
from tidemark.node_files.loading import parse_overrides

_FROM_BROKER = {"node.id": "0", "cluster.id": "tidemark-rsm-check"}


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
    """Load and configure a plugin; what it raises goes on as it is."""
    manager = load_storage_manager(class_name)
    manager.configure({**_FROM_BROKER, **settings})
    return manager


def make_first_plugin(class_name: str, settings: Mapping[str, str]) -> RemoteStorageManager:
    """As `make_plugin`, for the one that shows whether class and settings are right.

    Raises:
        PluginError: with the message for the user.
    """
    try:
        return make_plugin(class_name, settings)
    except (ValueError, RemoteStorageError) as e:
        raise PluginError(str(e)) from e
    except Exception as e:  # a plugin of somebody else may raise anything
        raise PluginError(f"{class_name}: cannot be configured: {e!r}") from e
