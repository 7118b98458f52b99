"""ApiVersions (18): what this listener serves, and which features the cluster has.

Derived from the handler table, so it cannot promise what is not there. The answer of an unknown
version is made by the network layer (KIP-511), because such a request's body cannot be read.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.handlers.registry import Handler, HandlerTable, RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response

_Response: Final = response(ApiKey.API_VERSIONS).cls
_ApiKey: Final = _Response.ApiKeys
_Supported: Final = _Response.SupportedFeatures
_Finalized: Final = _Response.FinalizedFeatures

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE: Final = 3
_FIRST_WITH_MIN_ZERO: Final = 4


@dataclass(frozen=True, slots=True)
class Features:
    """Features as clients see them.

    Attributes:
        supported: name -> (min, max) level that this broker can do (inclusive).
        finalized: name -> level in force; a level of 0 is not listed.
        epoch: last offset in the metadata image that `finalized` comes from; -1: unknown.
    """

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int


class ApiVersionsHandler:
    """Serves ApiVersions 0-4."""

    def __init__(self, table: HandlerTable, features: Callable[[], Features]) -> None:
        """Describe `table` as it is when a request comes."""
        self._table, self._features = table, features

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Answer one request."""
        version = context.api_version
        if version >= _FIRST_WITH_SOFTWARE and not (
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
                if low > 0 or version >= _FIRST_WITH_MIN_ZERO
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
        min_version=handler.min_version if low is None else low,
        max_version=handler.max_version,
    )


def make(table: HandlerTable, features: Callable[[], Features]) -> Handler:
    """Make the handler of ApiVersions 0-4; add it to `table`, which it describes."""
    return Handler(ApiKey.API_VERSIONS, 0, 4, ApiVersionsHandler(table, features).handle)
