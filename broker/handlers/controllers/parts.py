"""The parts of a controller for the handlers of its listener."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from broker.handlers.api_versions import Features
from broker.network.registry import HandlerTable
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.quorum.wire.rpc import WireIdentity


@dataclass(frozen=True)
class ControllerParts:
    """Parts for handlers of the controllers' listener.

    Attributes:
        features: Returns the features for ApiVersions.
        table: The handlers; ApiVersions answers from it.
    """

    identity: WireIdentity
    quorum: MetadataNode
    features: Callable[[], Features]
    table: HandlerTable = field(default_factory=partial(HandlerTable, may_overtake=True))
