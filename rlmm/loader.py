"""Turns a class name from the configuration into a metadata manager."""

from collections.abc import Mapping

from rlmm.api import RemoteLogMetadataManager
from rlmm.foreign import ADDITIONS, completed
from rlmm.powers import method_names
from rsm_plugins.loader import load_class

_KEY = "remote.log.metadata.manager.class.name"
JAVA_COUNTERPARTS: Mapping[str, str] = {
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager": (
        "rlmm.topic_based.manager:TopicBasedRemoteLogMetadataManager"
    ),
}


def load_metadata_manager(class_name: str) -> RemoteLogMetadataManager:
    """Make an instance, not yet configured, of the metadata manager of that name.

    One that lacks our additions to KIP-405's interface gets neutral ones, see `foreign`.

    Args:
        class_name: `package.module:Class`, or Kafka's name of the one on a topic.

    Raises:
        ValueError: the name is no class name, cannot be imported, or lacks a method.
    """
    found = load_class(_KEY, class_name, JAVA_COUNTERPARTS)
    missing = [
        name
        for name in method_names(RemoteLogMetadataManager)
        if name not in ADDITIONS and not callable(getattr(found, name, None))
    ]
    if missing:
        raise ValueError(f"{_KEY}={class_name}: has no {', '.join(missing)}")
    return completed(found())
