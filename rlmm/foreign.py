"""A metadata manager of somebody else that knows nothing of our additions to KIP-405's interface.

It works, and what it does not say proves nothing. What is lost with it:

* no log start and no unclean election is carried from owner to owner: after a lost checkpoint the
  log start is unknown more often, and a person decides;
* no chain is rebuilt from the store and no lost log end is noticed: nobody knows under which pair
  a segment was named;
* a follower is up to date as far as `follow` says;
* records that its topic lost are not noticed at once.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

from kafka_protocol.types import TopicIdPartition
from rlmm.api import (
    Fence,
    MetadataNotReadyError,
    PartitionHistory,
    RemoteLogMetadataManager,
)

ADDITIONS = ("carry", "history", "catch_up", "on_lost_records")
"""Methods that a manager has all of, or none."""


def completed(manager: Any) -> RemoteLogMetadataManager:
    """The manager, with neutral additions where it has not got all of them."""
    if all(callable(getattr(manager, name, None)) for name in ADDITIONS):
        return cast("RemoteLogMetadataManager", manager)
    return cast("RemoteLogMetadataManager", _WithoutHistory(manager))


class _WithoutHistory:
    """Hands everything on to the manager, but for what that has not got."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def own(
        self,
        partition: TopicIdPartition,
        fence: Fence,
        metadata_offset: int = -1,
        unclean_epoch: int = -1,
    ) -> "Future[None]":
        owned: Future[None] = self._manager.own(partition, fence, metadata_offset)
        return owned

    def carry(self, partition: TopicIdPartition, fence: Fence, log_start: int) -> None:
        pass

    def history(self, partition: TopicIdPartition) -> PartitionHistory | None:
        return None

    def catch_up(self, partition: TopicIdPartition) -> "Future[None]":
        done: Future[None] = Future()
        if self._manager.is_ready(partition):
            done.set_result(None)
        else:
            done.set_exception(MetadataNotReadyError(f"neither owned nor followed: {partition}"))
        return done

    def on_lost_records(self, listener: Callable[[TopicIdPartition], None]) -> None:
        pass
