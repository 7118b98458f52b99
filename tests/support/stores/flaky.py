"""Stores whose requests fail when a `FlakyRequests` says so: a file system of fsspec, and S3."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.contract.flaky import Failure, FlakyRequests, FlakyStore
from rsm_plugins.fsspec.plugin import FsspecRemoteStorageManager
from tests.support.stores.s3_faults import Fault, FaultPlan, Kind
from tests.support.stores.s3_proxy import S3Proxy

if TYPE_CHECKING:
    from tests.support.stores.s3 import S3Endpoint

METHODS = (
    "cat_file",
    "info",
    "ls",
    "makedirs",
    "mv",
    "open",
    "pipe_file",
    "rm_file",
    "rmdir",
    "upload",
)
"""What the plugin calls of a file system that is not asynchronous."""


def flaky_fsspec(manager: FsspecRemoteStorageManager, error: Callable[[], Exception]) -> FlakyStore:
    """The same plugin; every call of its file system, and of a file that it writes, may fail."""
    requests, fs = FlakyRequests(), manager._store.fs  # type: ignore[attr-defined]
    for name in METHODS:
        if hasattr(fs, name):
            setattr(fs, name, _requested(getattr(fs, name), requests, error))
    return FlakyStore(manager, requests)


def _requested(
    method: Callable[..., Any], requests: FlakyRequests, error: Callable[[], Exception]
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with requests.request(error):
            answer = method(*args, **kwargs)
        is_written = method.__name__ == "open" and "wb" in args
        return _File(answer, requests, error) if is_written else answer

    return call


class _File:
    """A file that is written; every write and its end are requests."""

    def __init__(self, inner: Any, requests: FlakyRequests, error: Callable[[], Exception]) -> None:
        self._inner = inner
        self.write = _requested(inner.write, requests, error)
        self.close = _requested(inner.close, requests, error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Plan(FaultPlan):
    def __init__(self, flaky: FlakyRequests) -> None:
        super().__init__()
        self._flaky = flaky

    def next_fault(self, kind: Kind, key: str) -> Fault | None:
        match self._flaky.next():
            case Failure.NOT_DONE:
                return Fault.SLOW_DOWN
            case Failure.ANSWER_LOST:
                return Fault.LOST_ANSWER
        return None


@contextmanager
def flaky_s3(
    s3: "S3Endpoint", configured: Callable[[str, str], RemoteStorageManager]
) -> Iterator[FlakyStore]:
    """A plugin on a bucket behind a proxy; every HTTP request may fail.

    Args:
        s3: the store itself.
        configured: makes the plugin of an endpoint's URL and a bucket.
    """
    with S3Proxy(s3.url) as proxy:
        manager, requests = configured(proxy.url, s3.new_bucket()), FlakyRequests()
        proxy.plan = _Plan(requests)
        yield FlakyStore(manager, requests)
        manager.close()
