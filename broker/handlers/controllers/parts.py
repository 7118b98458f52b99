"""What a controller hands to the handlers of its listener."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from broker.handlers.api_versions import Features
from broker.network.registry import HandlerTable
from metadata_topic.quorum.view import QuorumView
from metadata_topic.quorum.wire.rpc import WireIdentity
from metadata_topic.raft.messages import Request, Response


class Quorum(Protocol):
    """This node's replica of the metadata log."""

    def receive(self, request: Request, respond: Callable[[Response], None]) -> None:
        """Take a request; `respond` is called once, at once or later, on the loop's thread."""
        ...

    def describe(self) -> QuorumView:
        """The quorum as this replica sees it now."""
        ...


@dataclass(frozen=True)
class ControllerParts:
    """What handlers of the controllers' listener are made of.

    Attributes:
        features: for ApiVersions.
        table: the one that the handlers are put into; ApiVersions answers from it.
    """

    identity: WireIdentity
    quorum: Quorum
    features: Callable[[], Features]
    table: HandlerTable = field(default_factory=partial(HandlerTable, may_overtake=True))
