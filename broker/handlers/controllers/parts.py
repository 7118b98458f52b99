"""What a controller hands to the handlers of its listener."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from broker.handlers.api_versions import Features
from broker.network.registry import HandlerTable
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.quorum.wire.rpc import WireIdentity


@dataclass(frozen=True)
class ControllerParts:
    """What handlers of the controllers' listener are made of.

    Attributes:
        features: for ApiVersions.
        table: the one that the handlers are put into; ApiVersions answers from it.
    """

    identity: WireIdentity
    quorum: MetadataNode
    features: Callable[[], Features]
    table: HandlerTable = field(default_factory=partial(HandlerTable, may_overtake=True))
