"""Turns a class name from the configuration into a metadata manager."""

from collections.abc import Mapping

from rlmm.api import RemoteLogMetadataManager
from rsm_plugins.loader import load_class

_KEY = "remote.log.metadata.manager.class.name"
JAVA_COUNTERPARTS: Mapping[str, str] = {
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager": (
        "rlmm.topic_based.manager:TopicBasedRemoteLogMetadataManager"
    ),
}


def load_metadata_manager(class_name: str) -> RemoteLogMetadataManager:
    """Make an instance, not yet configured, of the metadata manager of that name.

    Args:
        class_name: `package.module:Class`, or Kafka's name of the one on a topic.

    Raises:
        ValueError: the name is no class name, cannot be imported, or is no
            RemoteLogMetadataManager with all methods that one needs.
    """
    found = load_class(_KEY, class_name, JAVA_COUNTERPARTS)
    if not issubclass(found, RemoteLogMetadataManager):
        raise ValueError(  # noqa: TRY004 - the setting is what is wrong
            f"{_KEY}={class_name}: not a subclass of rlmm.api.RemoteLogMetadataManager"
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise ValueError(f"{_KEY}={class_name}: has no {', '.join(missing)}")
    return found()
