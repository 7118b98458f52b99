"""The two plugins of a tier process, loaded and configured; by whom is not known here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlm.deletions import Deletions
from rlm.plugin_calls import PluginCalls
from rlm.telemetry import Telemetry
from rlmm.api import RemoteLogMetadataManager
from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.place import UNNAMED, StoreIdentity
from rsm_plugins.store_faults import StoreFaults
from runtime.health_reasons import HealthText

if TYPE_CHECKING:  # the remover is loaded with a manager that needs it
    from rlmm.topic_based.remover import Remover


def _nothing(client_settings: Mapping[str, str]) -> None:
    """Nothing is left to do."""


@dataclass(frozen=True, slots=True)
class Plugins:
    """Storage plugin and metadata manager.

    Attributes:
        deletions: deletes by the storage plugin, and knows what continues failing.
        connect: configures the metadata manager, once the broker takes its connections, with what
            its Kafka clients need for them.
        remover: of deleted topics, where the manager needs one.
        unhealthy, yellow: what the remover found that only an operator can settle.
        store_faults: what tests make the storage suffer; None where none can.
        identity: of the store.
    """

    storage: RemoteStorageManager
    metadata: RemoteLogMetadataManager
    deletions: Deletions
    connect: Callable[[Mapping[str, str]], None] = _nothing
    remover: "Remover | None" = None
    unhealthy: Callable[[], Sequence[HealthText]] = tuple
    yellow: Callable[[], Sequence[HealthText]] = tuple
    store_faults: StoreFaults | None = None
    identity: StoreIdentity = UNNAMED

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
