"""ApiVersions (18): the APIs of this listener, and the features of the cluster.

The answer is derived from the handler table, so it names only APIs with a handler. The network
layer answers requests of an unknown version (KIP-511), because their body cannot be decoded.

Versions; the header of every answer is that of version 0 (KIP-511):

* 0: API keys with their ranges (KIP-35).
* 1: throttle time (KIP-124).
* 2: no new field; the client waits out a throttle, not the broker (KIP-219).
* 3: flexible (KIP-482); the client's software (KIP-511), features (KIP-584) and the state of a
  migration from ZooKeeper, which is never sent here (KIP-866).
* 4: no new field; the lowest level of a feature may be 0 (KAFKA-17011).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from broker.network.registry import DecodedHandler, Handler, HandlerTable, RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.features import SUPPORTED_FEATURES, finalized_features
from metadata_topic.image.image import MetadataImage

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

_Response: Final = response(ApiKey.API_VERSIONS).cls
_ApiKey: Final = _Response.ApiKeys
_Supported: Final = _Response.SupportedFeatures
_Finalized: Final = _Response.FinalizedFeatures

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SINCE_SOFTWARE: Final = 3
_SINCE_MIN_ZERO: Final = 4


@dataclass(frozen=True, slots=True)
class Features:
    """Features as clients see them.

    Attributes:
        supported: Name -> (min, max) level that this node supports (inclusive).
        finalized: Name -> level in force; a level of 0 is not listed.
        epoch: Last offset in the metadata image that `finalized` comes from; -1: unknown.
    """

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int


class ApiVersionsHandler(DecodedHandler):
    """Serves ApiVersions 0-4."""

    api_key = ApiKey.API_VERSIONS
    versions = Versions(0, 4)

    def __init__(self, table: HandlerTable, features: Callable[[], Features]) -> None:
        """Describe `table` as it is at the time of each request."""
        self._table, self._features = table, features

    def handle(self, context: RequestContext, request: Any) -> Any:
        """List the APIs and features; INVALID_REQUEST for an illegal name of client software."""
        version = context.api_version
        if version >= _SINCE_SOFTWARE and not (
            _SOFTWARE.fullmatch(request.client_software_name)
            and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            return _Response(error_code=int(ErrorCode.INVALID_REQUEST))
        features = self._features()
        return _Response(
            api_keys=[_entry(handler) for handler in self._table],
            supported_features=[
                _Supported(name=name, min_version=low, max_version=high)
                for name, (low, high) in features.supported.items()
                # Clients before version 4 cannot read a minimum of 0.
                if low > 0 or version >= _SINCE_MIN_ZERO
            ],
            finalized_features_epoch=features.epoch,
            finalized_features=[
                _Finalized(name=name, max_version_level=level, min_version_level=level)
                for name, level in features.finalized.items()
                if level > 0 and features.epoch >= 0
            ],
        )


def _entry(handler: Handler) -> Any:
    low = handler.advertised_min_version
    return _ApiKey(
        api_key=int(handler.api_key),
        min_version=handler.versions.first if low is None else low,
        max_version=handler.versions.last,
    )


def features_of(image: MetadataImage, kraft_version: int) -> Features:
    """Features that this version supports, and those finalised in the node's image."""
    return Features(
        supported=SUPPORTED_FEATURES,
        finalized=finalized_features(image, kraft_version),
        epoch=image.provenance.offset,
    )


def make(parts: "HandlerParts") -> ApiVersionsHandler:
    """Make the handler, which describes the table that it becomes part of."""
    return ApiVersionsHandler(
        parts.table, lambda: features_of(parts.cluster.image(), parts.node.kraft_version)
    )
