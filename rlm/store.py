"""The remote store as the parts of a tier use it: both plugins, their calls watched and counted."""

from dataclasses import dataclass

from rlm.plugin_calls import PluginCalls
from rlm.telemetry import Telemetry
from rlmm.api import RemoteLogMetadataManager
from rsm_plugins.api import RemoteStorageManager


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
