"""A client's request and its answer in Envelope (58), as brokers of Kafka forward them (KIP-590).

The active controller gets header and body as the client sent them, the client's address, and its
principal in the form of Kafka's DefaultKafkaPrincipalBuilder.
"""

from ipaddress import ip_address
from struct import Struct
from typing import Any, Final

from broker.network.authentication import ANONYMOUS
from broker.network.registry import RequestContext
from kafka_protocol.errors import ApiError, ErrorCode, MalformedMessageError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.primitives import skip_tags
from metadata_topic.controller.errors import NotControllerError
from runtime.work import run_in_steps

VERSION: Final = 0
_Request: Final = codec.request(ApiKey.ENVELOPE).cls
_PRINCIPAL: Final = codec.message("DefaultPrincipalData")
_PRINCIPAL_VERSION: Final = b"\0\0"
_HEADER: Final = Struct(">hhih")
_CORRELATION_BYTES: Final = 4
_CLIENT_ID_BYTES_MAX: Final = 2**15 - 1
"""An upper bound is needed: bytes that were no UTF-8 have become three each."""
_FLEXIBLE: Final = 2
_AROUND_BYTES: Final = 128
"""Upper bound of an envelope's other fields: header with our client id, lengths, address, tags."""


async def envelope_of(context: RequestContext, request: Any) -> Any:
    """Make the envelope of a client's request; a long one is encoded in slices."""
    key, version = ApiKey(context.api_key), context.api_version
    client_id = context.client_id.encode()[:_CLIENT_ID_BYTES_MAX]
    tags = b"\0" if header_versions(key, version)[0] == _FLEXIBLE else b""
    header = _HEADER.pack(key, version, context.correlation_id, len(client_id))
    kind, _, name = (context.session.principal or ANONYMOUS).partition(":")
    principal = _PRINCIPAL.cls(type=kind, name=name, token_authenticated=False)
    body = await run_in_steps(codec.request(key).encode_steps(request, version))
    return _Request(
        request_data=b"".join((header, client_id, tags, *body)),
        request_principal=_PRINCIPAL_VERSION + _PRINCIPAL.encode(principal, 0),
        client_host_address=ip_address(context.peer[0]).packed,
    )


def envelope_bytes(envelope: Any) -> int:
    """Upper bound of the size of its frame."""
    return _AROUND_BYTES + len(envelope.request_principal) + len(envelope.request_data)


def answer_in(envelope: Any, context: RequestContext) -> bytes:
    """The body of the answer to the client's request, in the version of the request.

    Raises:
        NotControllerError: Another controller is active; nothing was done.
        ApiError: The envelope was refused; UNSUPPORTED_VERSION: the request in it is not served.
    """
    key, version = ApiKey(context.api_key), context.api_version
    code, data = ErrorCode.of(envelope.error_code), envelope.response_data
    if code == ErrorCode.NOT_CONTROLLER:
        raise NotControllerError("the controller that was asked is not active any more")
    if code == ErrorCode.UNSUPPORTED_VERSION:
        raise ApiError(code, f"the active controller does not serve {key.name} {version}")
    if code != ErrorCode.NONE or data is None:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the active controller refused the forwarded {key.name} {version}: {code.name}",
        )
    start = _CORRELATION_BYTES
    if int.from_bytes(data[:start], "big", signed=True) != context.correlation_id:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"an answer to another {key.name}")
    try:
        return bytes(data[skip_tags(data, start) if header_versions(key, version)[1] else start :])
    except (IndexError, MalformedMessageError) as cause:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the answer to {key.name} is cut short"
        ) from cause
