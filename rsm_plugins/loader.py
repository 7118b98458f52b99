"""Turns a class name from the configuration into a storage plugin.

The only module that names plugins, by string.

A name is `package.module:Class`. Kafka's own Java class names mean our counterparts, so that a real
server.properties works. Any other Java name gets an error with the form to use instead.
"""

import importlib
import re
import sys
from collections.abc import Mapping

from rsm_plugins.api import RemoteStorageManager

_KEY = "remote.log.storage.manager.class.name"
JAVA_COUNTERPARTS: Mapping[str, str] = {
    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage": (
        "rsm_plugins.local_fs:LocalFsRemoteStorageManager"
    ),
}
SHIPPED: tuple[str, ...] = (
    "rsm_plugins.local_fs:LocalFsRemoteStorageManager",
    "rsm_plugins.s3:S3RemoteStorageManager",
    "rsm_plugins.hdfs:HdfsRemoteStorageManager",
    "rsm_plugins.fsspec:FsspecRemoteStorageManager",
)
"""The plugins of this project, for pages and tools that show all of them."""
_PYTHON_NAME = re.compile(r"[A-Za-z_][\w]*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_JAVA_NAME = re.compile(r"([a-z_]\w*\.)+[A-Z][\w$]*")


def is_python_name(text: str) -> bool:
    """True if it has the form `package.module:Class`."""
    return _PYTHON_NAME.fullmatch(text) is not None


def no_such_module(module: str) -> str:
    """The message for a missing module: where Python looked, and how to add a directory."""
    places = ", ".join(one for one in sys.path if one)
    return (
        f"there is no such module; Python looked in {places}; with"
        f" `export PYTHONPATH=DIRECTORY` it looks where {module.partition('.')[0]} lies, too"
    )


def why_no_class_name(class_name: str) -> str | None:
    """Why no storage plugin can have that name, with the names of ours; None if one can."""
    name = JAVA_COUNTERPARTS.get(class_name, class_name)
    if _JAVA_NAME.fullmatch(name):
        return (
            "a Java class cannot be loaded; give `package.module:Class` of a Python class, with its"
            f" own rsm.config. settings (docs/remote-stores.md): {', '.join(SHIPPED)}"
        )
    if not is_python_name(name):
        return f"must be `package.module:Class` of a Python class, as {', '.join(SHIPPED)} are"
    return None


def load_storage_manager(class_name: str) -> RemoteStorageManager:
    """Make an instance, not yet configured, of the named storage plugin.

    Args:
        class_name: Value of `remote.log.storage.manager.class.name`.

    Raises:
        ValueError: The name is no class name, cannot be imported, or is no RemoteStorageManager.
    """
    found = load_class(_KEY, class_name, JAVA_COUNTERPARTS)
    if not issubclass(found, RemoteStorageManager):
        raise ValueError(  # noqa: TRY004 - the setting is what is wrong
            f"{_KEY}={class_name}: not a subclass of rsm_plugins.api.RemoteStorageManager"
        )
    return found()


def load_class(key: str, class_name: str, java_counterparts: Mapping[str, str]) -> type:
    """Find the class that a setting names.

    Args:
        key: The setting, for the error message.
        class_name: Its value.
        java_counterparts: Java class names that stand for classes of ours.

    Raises:
        ValueError: Key, value and the allowed values.
    """
    name = java_counterparts.get(class_name, class_name)
    if _JAVA_NAME.fullmatch(name):
        known = ", ".join(sorted(java_counterparts))
        raise ValueError(
            f"{key}={class_name}: a Java class cannot be loaded; allowed is"
            f" `package.module:Class` of a Python class, or one of {known}"
        )
    if not is_python_name(name):
        raise ValueError(f"{key}={class_name}: allowed is `package.module:Class` of a Python class")
    module_name, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except ImportError as e:
        ours = f"; ours are {', '.join(SHIPPED)}" if module_name.startswith("rsm_plugins.") else ""
        is_it = isinstance(e, ModuleNotFoundError) and f"{module_name}.".startswith(f"{e.name}.")
        why = no_such_module(module_name) if is_it and not ours else str(e)
        raise ValueError(f"{key}={class_name}: cannot import {module_name}: {why}{ours}") from e
    except AttributeError as e:
        raise ValueError(f"{key}={class_name}: {module_name} has no {attribute}") from e
    if not isinstance(found, type):
        raise ValueError(f"{key}={class_name}: {attribute} is not a class")  # noqa: TRY004 - as above
    return found
