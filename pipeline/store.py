"""Opens the storage plugin of an address in this process, and says what an address means.

Executors run many tasks in one Python process: `shared_store` opens each store once and closes it
when the process ends. Credentials are never settings of ours: each plugin's library finds them in
the environment of its process, so they are looked for again on every executor.
"""

import atexit
import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from pipeline.errors import OptionError, StoreUnreachableError
from pipeline.values import StoreAddress
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from rsm_plugins.loader import JAVA_COUNTERPARTS, load_storage_manager
from rsm_plugins.settings import FROM_BROKER, PREFIX

_DEADLINE_S = 60.0

T = TypeVar("T")

LOCAL_FS = "rsm_plugins.local_fs:LocalFsRemoteStorageManager"
S3 = "rsm_plugins.s3:S3RemoteStorageManager"
HDFS = "rsm_plugins.hdfs:HdfsRemoteStorageManager"
FSSPEC = "rsm_plugins.fsspec:FsspecRemoteStorageManager"

_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
_HDFS_SCHEMES = frozenset({"hdfs", "webhdfs", "swebhdfs"})
_ALLOWED = (
    "a directory, file:///dir, s3://bucket/prefix, hdfs://host:port/dir, or another URL of fsspec"
)


def address_of_url(url: str, settings: Mapping[str, str] | None = None) -> StoreAddress:
    """The plugin and the settings that one URL stands for.

    Args:
        url: a directory, or `file://`, `s3://`, `hdfs://`, `webhdfs://`, or what fsspec reaches.
        settings: more of the plugin's (`rsm.config.*`, prefix removed); they win.

    Raises:
        OptionError: it is no URL of a store, or the plugin has no such setting.
    """
    class_name, named = _plugin_of_url(url.strip())
    return address_of_class(class_name, {**named, **(settings or {})})


def address_of_class(class_name: str, settings: Mapping[str, str]) -> StoreAddress:
    """The address of a plugin whose settings a user gives.

    A plugin only warns of an unknown name, as brokers pass it settings that were made for another
    one. A reader who misspells `endpoint.url` would wait for a store that is not there. Nothing is
    checked where the plugin declares no settings, or cannot be loaded: `open_store` says why.

    Raises:
        OptionError: the plugin declares its settings, and has none of a name.
    """
    address = StoreAddress(class_name, settings)
    try:
        declared = getattr(load_storage_manager(class_name), "SETTINGS", ())
    except ValueError:
        return address
    names = [one.name for one in declared]
    for name in sorted(settings.keys() - FROM_BROKER):
        if names and not any(fnmatchcase(name, one) for one in names):
            near = get_close_matches(name, names, 1)
            hint = f"did you mean {PREFIX}{near[0]}?" if near else f"it has {', '.join(names)}"
            raise OptionError(f"the store has no setting {PREFIX}{name[:100]}; {hint}")
    return address


def _plugin_of_url(url: str) -> tuple[str, dict[str, str]]:
    scheme, colon, _ = url.partition("://")
    if not colon:
        if not url or "\0" in url:
            raise OptionError(f"the bucket {url[:100]!r} is no place: allowed is {_ALLOWED}")
        # absolute: an executor works in another directory
        return LOCAL_FS, {"dir": str(Path(url).expanduser().absolute())}
    try:
        parts = urlsplit(url)
        has_password = parts.password is not None
    except ValueError:
        raise OptionError(f"the bucket's {scheme}:// URL cannot be read: {_ALLOWED}") from None
    scheme = scheme.lower()
    if scheme == "file":
        if parts.netloc not in {"", "localhost"} or not parts.path.strip("/"):
            raise OptionError(f"the bucket {url[:200]} names no directory: allowed is file:///dir")
        return LOCAL_FS, {"dir": unquote(parts.path)}
    if scheme in _S3_SCHEMES:
        if parts.username is not None:
            raise OptionError(
                "an s3:// URL holds no user and no key: credentials come from the environment, the"
                " shared AWS files or the host's role"
            )
        if not parts.netloc or parts.query or parts.fragment:
            raise OptionError(
                f"the bucket {url.partition('?')[0][:200]} is wrong: allowed is s3://bucket/prefix;"
                " region and endpoint are the settings rsm.config.region, rsm.config.endpoint.url"
            )
        prefix = parts.path.strip("/")
        return S3, {"bucket": parts.netloc} | ({"prefix": prefix} if prefix else {})
    if scheme in _HDFS_SCHEMES:
        if has_password or not parts.hostname or not parts.path.strip("/"):
            raise OptionError(
                f"the bucket's {scheme}:// URL is wrong: allowed is {scheme}://host:port/directory,"
                " without a password"
            )
        return HDFS, {"url": url}
    return FSSPEC, {"url": url}


def shown(address: StoreAddress) -> str:
    """Where a store is, for messages; nothing of it can be a secret."""
    settings = address.settings
    if settings.get("bucket"):
        prefix = settings.get("prefix", "").strip("/")
        scheme, _, host = settings.get("endpoint.url", "").strip().partition("://")
        at = f" at {scheme}://{host.partition('?')[0].rpartition('@')[2]}" if host else ""
        return f"s3://{settings['bucket']}/{prefix}".rstrip("/") + at
    if settings.get("url"):
        scheme, _, rest = settings["url"].partition("://")
        return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"[:200]
    return settings.get("dir") or address.class_name


def open_store(address: StoreAddress, cluster_id: str = "") -> RemoteStorageManager:
    """The plugin, configured; the caller closes it.

    Raises:
        OptionError: class or settings are wrong.
        StoreUnreachableError: the store cannot be used from here.
    """
    reader = _settings_of_a_reader(address)
    try:
        manager = load_storage_manager(address.class_name)
        manager.configure({**reader, **address.settings, "cluster.id": cluster_id})
    except ValueError as error:
        raise OptionError(str(error)) from error
    except RemoteStorageError as error:
        raise unreachable(address, error) from error
    return manager


def unreachable(address: StoreAddress, error: object) -> StoreUnreachableError:
    """The one line of a store that cannot be used: which, from where, why and what to do."""
    return StoreUnreachableError(
        f"the store {shown(address)} cannot be used from host {socket.gethostname()}: {error};"
        " each process that reads needs its network, its settings (rsm.config.*) and credentials"
        " where its library looks for them"
    )


def _settings_of_a_reader(address: StoreAddress) -> dict[str, str]:
    """A reader needs no right to write, and never makes the directory.

    One that is missing is another host's, or not mounted.
    """
    if JAVA_COUNTERPARTS.get(address.class_name, address.class_name) != LOCAL_FS:
        return {}
    directory = address.settings.get("dir", "").strip()
    if directory and not Path(directory).is_dir():
        raise unreachable(address, "there is no such directory here, or it is not mounted")
    return {"check.writable": "false"}


# ---------------------------------------------------------------------- one for each process


@dataclass
class _Shared:
    """A store of this process; the lock is held while it is opened."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    manager: RemoteStorageManager | None = None


_Key = tuple[str, tuple[tuple[str, str], ...], str]
_stores: dict[_Key, _Shared] = {}
_stores_lock = threading.Lock()


def shared_store(address: StoreAddress, cluster_id: str = "") -> RemoteStorageManager:
    """Open a store once for this process and address; it is never closed. Thread-safe.

    A store that could not be opened is tried again by the next call.
    """
    key = (address.class_name, tuple(sorted(address.settings.items())), cluster_id)
    with _stores_lock:
        shared = _stores.setdefault(key, _Shared())
    with shared.lock:
        if shared.manager is None:
            shared.manager = open_store(address, cluster_id)
        return shared.manager


def close_stores() -> None:
    """Close every store that this process shares; the next call opens it again."""
    with _stores_lock:
        found = list(_stores.values())
        _stores.clear()
    for shared in found:
        with shared.lock:
            if shared.manager is not None:
                shared.manager.close()
                shared.manager = None


def _forget_stores() -> None:
    """In a forked process: connections and threads are the parent's, and so is closing them."""
    global _stores_lock
    _stores.clear()
    _stores_lock = threading.Lock()


atexit.register(close_stores)
os.register_at_fork(after_in_child=_forget_stores)


def from_store(read: Callable[[], T]) -> T:
    """Call until the store answers.

    Raises:
        RemoteResourceNotFoundError, RemoteObjectDamagedError: as the call; only it knows what of.
        StoreUnreachableError: the store failed for too long, or will not do it.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(RetriableRemoteStorageError),
        stop=stop_after_delay(_DEADLINE_S),
        wait=wait_random_exponential(multiplier=0.1, max=5),
        reraise=True,
    )
    try:
        return retrying(read)
    except (RemoteResourceNotFoundError, RemoteObjectDamagedError):
        raise
    except RemoteStorageError as error:
        raise StoreUnreachableError(
            f"the store cannot be used from host {socket.gethostname()}: {error}; see whether"
            " it can be reached from there, and whether settings (rsm.config.*) and credentials are"
            " right"
        ) from error
