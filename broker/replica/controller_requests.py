"""What replicas ask of the controller."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from metadata_topic.controller.directories import ReplicaId

Assign = Callable[[Mapping[ReplicaId, bytes]], None]
"""Notes in the metadata which replica was made in which log directory; returns at once."""


class RaiseEpoch(Protocol):
    """Has the controller raise a leader epoch; see `LeaderEpochRequests.ask`."""

    def __call__(self, replica: ReplicaId, *, leader_epoch: int, used: int) -> str:
        """Return at once: why it is in vain, "" while it may still come about."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRequests:
    """What replicas ask of the controller.

    Attributes:
        assign: without it new replicas are served as soon as they are made.
        raise_epoch: without it a log of a later leader epoch than the metadata's waits for a
            person.
    """

    assign: Assign | None = None
    raise_epoch: RaiseEpoch | None = None


NO_REQUESTS = ControllerRequests()
