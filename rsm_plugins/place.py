"""Identity of a configured plugin's store: brokers compare theirs before they share a tiered topic.

Two tiers are equal when their plugins are of one class and name one place. Only a hash leaves the
tier process: it goes into the cluster metadata, which any client may read.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from rsm_plugins.api import RemoteStorageManager, StorePlace
from rsm_plugins.settings import public_names


class StoreIdentity(NamedTuple):
    """Identity of a store, for comparison.

    Attributes:
        class_name: `module:Class` of the plugin itself, under which any other name in the
            configuration found it.
        place_hash: SHA-256 over the class and the place of the store.
    """

    class_name: str
    place_hash: bytes


UNNAMED: Final = StoreIdentity("", b"")
"""Of a store whose identity is not known."""


def identity_of(plugin: RemoteStorageManager, configs: Mapping[str, str]) -> StoreIdentity:
    """The identity of a configured plugin's store.

    If the plugin does not name its place, all its declared settings that are not secret stand for
    the place. A plugin that declares none is identified by its class alone.

    Args:
        plugin: Configured.
        configs: Its settings, prefix removed.
    """
    class_name = f"{type(plugin).__module__}:{type(plugin).__qualname__}"
    if isinstance(plugin, StorePlace):
        place = plugin.store_place()
    else:
        public = {name: configs[name] for name in public_names(plugin) if name in configs}
        place = json.dumps(public, sort_keys=True)
    text = json.dumps([class_name, place])
    return StoreIdentity(class_name, hashlib.sha256(text.encode()).digest())
