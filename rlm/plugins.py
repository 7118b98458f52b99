"""The two plugins of a tier process, loaded and configured.

This module does not name any plugin.
"""

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
    """The default of `Plugins.connect`, for a metadata manager that needs no connection."""


@dataclass(frozen=True, slots=True)
class Plugins:
    """Storage plugin and metadata manager.

    Attributes:
        deletions: Deletes by the storage plugin, and remembers failing deletions.
        connect: Configures the metadata manager once the broker accepts connections, with the
            settings of its Kafka clients.
        remover: Of deleted topics, if the metadata manager has one.
        unhealthy, yellow: Findings of the remover that need an operator.
        store_faults: Faults that tests inject into the store; None where they are not permitted.
        identity: Of the store.
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
        """Close both; the metadata manager first, since it may still be writing."""
        self.metadata.close()
        self.storage.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The remote store, for parts that work with it.

    Attributes:
        metadata: The remote segments.
        storage: Their objects.
        calls: Registers each call of the storage plugin.
        telemetry: Metrics.
    """

    metadata: RemoteLogMetadataManager
    storage: RemoteStorageManager
    calls: PluginCalls
    telemetry: Telemetry
