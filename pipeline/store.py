"""Opens the storage plugin of an address in this process."""

from pipeline.errors import OptionError, StoreUnreachableError
from pipeline.values import StoreAddress
from rsm_plugins.api import RemoteStorageError, RemoteStorageManager
from rsm_plugins.loader import load_storage_manager


def open_store(address: StoreAddress, cluster_id: str = "") -> RemoteStorageManager:
    """The plugin, configured; the caller closes it.

    Raises:
        OptionError: class or settings are wrong.
        StoreUnreachableError: the store cannot be used from here.
    """
    try:
        manager = load_storage_manager(address.class_name)
        manager.configure({**address.settings, "cluster.id": cluster_id})
    except ValueError as error:
        raise OptionError(str(error)) from error
    except RemoteStorageError as error:
        raise StoreUnreachableError(f"the store cannot be used: {error}") from error
    return manager
