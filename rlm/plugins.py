"""The two plugins of a tier process, loaded and configured; by whom is not known here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka_protocol.types import TopicIdPartition
from rlm.deletions import Deletions
from rlm.plugin_calls import PluginCalls
from rlm.telemetry import Telemetry
from rlmm.api import RemoteLogMetadataManager
from rlmm.red import RedText
from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.store_faults import StoreFaults


def _nothing(client_settings: Mapping[str, str]) -> None:
    """Nothing is left to do."""


class RemovesTopics(Protocol):
    """The remover of deleted topics; see `rlmm.topic_based.remover.Remover`."""

    def look(self) -> Sequence[TopicIdPartition]:
        """Say what is to be removed; by one thread at a time."""
        ...

    def remove(self, partition: TopicIdPartition, on_given_up: Callable[[], None]) -> bool:
        """Take one as far as it can go now; say whether its turn was over before.

        `on_given_up` is called where a call of the storage plugin hangs: another may have the turn.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plugins:
    """Storage plugin and metadata manager.

    Attributes:
        deletions: deletes by the storage plugin, and knows what goes on failing.
        connect: configures the metadata manager, once the broker takes its connections, with what
            its Kafka clients need for them.
        remover: of deleted topics, where the manager needs one.
        red: what the remover found that only an operator can settle.
        store_faults: what tests make the storage suffer; None where none can.
    """

    storage: RemoteStorageManager
    metadata: RemoteLogMetadataManager
    deletions: Deletions
    connect: Callable[[Mapping[str, str]], None] = _nothing
    remover: RemovesTopics | None = None
    red: Callable[[], Sequence[RedText]] = tuple
    store_faults: StoreFaults | None = None

    def close(self) -> None:
        """Close both: the metadata manager first, it may still be writing."""
        self.metadata.close()
        self.storage.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """What a part needs to work with the remote store.

    Attributes:
        metadata: which remote segments exist.
        storage: their objects.
        calls: running calls of the storage plugin; each call is registered here.
        telemetry: what is counted.
    """

    metadata: RemoteLogMetadataManager
    storage: RemoteStorageManager
    calls: PluginCalls
    telemetry: Telemetry
