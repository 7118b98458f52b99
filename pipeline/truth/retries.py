"""Store reads of the planner: tried again within a deadline, and failures in the user's words."""

import socket
from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from pipeline.errors import StoreUnreachableError
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)

_DEADLINE_S = 60.0

T = TypeVar("T")


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
