"""Turns a class name from the configuration into a metadata manager."""

from collections.abc import Callable, Mapping
from inspect import Parameter, getmembers, isfunction, signature
from typing import Any

from rlmm.api import RemoteLogMetadataManager, RemovesDeletedTopics
from rsm_plugins.loader import load_class

_KEY = "remote.log.metadata.manager.class.name"
JAVA_COUNTERPARTS: Mapping[str, str] = {
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager": (
        "rlmm.topic_based.manager:TopicBasedRemoteLogMetadataManager"
    ),
}


def load_metadata_manager(class_name: str) -> RemoteLogMetadataManager:
    """Make an instance, not yet configured, of the named metadata manager.

    Args:
        class_name: `package.module:Class`, or Kafka's name of the manager on a topic.

    Raises:
        ValueError: The name is no class name, cannot be imported, or is no RemoteLogMetadataManager
            with all required methods and their parameters.
    """
    found = load_class(_KEY, class_name, JAVA_COUNTERPARTS)
    if not issubclass(found, RemoteLogMetadataManager):
        raise ValueError(  # noqa: TRY004 - the setting is what is wrong
            f"{_KEY}={class_name}: not a subclass of rlmm.api.RemoteLogMetadataManager"
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise ValueError(f"{_KEY}={class_name}: has no {', '.join(missing)}")
    manager = found()
    removes = isinstance(manager, RemovesDeletedTopics)
    api = RemovesDeletedTopics if removes else RemoteLogMetadataManager
    for name, due in getmembers(api, isfunction):
        why = "" if name.startswith("_") else _why_unfit(due, getattr(manager, name))
        if why:
            raise ValueError(f"{_KEY}={class_name}: {name}: {why}")
    return manager


def _why_unfit(due: Callable[..., Any], method: Callable[..., Any]) -> str:
    """Why a method does not accept calls of the API; "" if it does, by position and by name."""
    parameters = [*signature(due).parameters.values()][1:]
    names = [one.name for one in parameters]
    required = [one.name for one in parameters if one.default is Parameter.empty]
    try:
        taken = signature(method)
        taken.bind(**dict.fromkeys(names))
        taken.bind(**dict.fromkeys(required))
        bound = taken.bind(*names).arguments
    except (TypeError, ValueError) as error:
        return f"{error}; due are ({', '.join(names)})"
    moved = [name for name in names if bound.get(name, name) != name]
    return f"{', '.join(moved)} at another place; due are ({', '.join(names)})" if moved else ""
