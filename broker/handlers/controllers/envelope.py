"""Envelope (58): a broker forwards a client's request, with the client's principal and address.

Versions:

* 0: KIP-590; flexible.

This listener's handler of the inner API serves the request, and the envelope returns its answer
with the header. An inner request that cannot be decoded is UNSUPPORTED_VERSION, as in Kafka, so
that a broker can distinguish it from a malformed envelope. NOT_CONTROLLER is an error of the
envelope itself: the broker then looks for the active controller. Only controllers' listeners serve
this API; others close the connection, as in Kafka.

The principal must be decodable; it is not used while there is no authorizer.
"""

import logging
from collections.abc import Callable
from inspect import isawaitable
from ipaddress import ip_address
from itertools import chain
from typing import Any, Final

from broker.network.dispatch import decoded
from broker.network.registry import CloseConnection, DecodedHandler, HandlerTable, RequestContext
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError, MalformedMessageError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.framing import RequestHeader, read_request_header, response_parts
from kafka_protocol.wire.schema import Versions
from runtime.clock import Clock
from runtime.executors import Pool
from runtime.incidents import Incident
from runtime.log_context import LimitedLog
from runtime.work import Pace, Steps, run_in_steps

log = logging.getLogger(__name__)

_Response: Final = codec.response(ApiKey.ENVELOPE).cls
_PRINCIPAL: Final = codec.message("DefaultPrincipalData")
_VERSION_BYTES: Final = 2
_SIZE_BYTES: Final = 4

FORWARDABLE: Final = frozenset({
    ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CONFIGS, ApiKey.CREATE_PARTITIONS, ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
})  # fmt: skip
"""The APIs that Kafka 4.3 accepts in an envelope."""


class EnvelopeHandler(DecodedHandler):
    """Answers Envelope on a controllers' listener."""

    api_key = ApiKey.ENVELOPE
    versions = Versions(0, 0)

    def __init__(
        self, table: HandlerTable, metadata_end: Callable[[], int], decoding: Pool, clock: Clock
    ) -> None:
        """Serve inner requests.

        Args:
            table: Has the handlers.
            metadata_end: Returns the end offset (exclusive) of the metadata log in the image here.
            decoding: Decodes long requests.
            clock: For the log lines.
        """
        self._table, self._metadata_end = table, metadata_end
        self._decoding, self._refusals = decoding, LimitedLog(clock)

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Serve the inner request."""
        try:
            answer = await self._served(context, request)
            # A change is in the image here before its answer leaves.
            return _Response(response_data=answer, metadata_end=self._metadata_end())
        except KafkaError as error:
            if error.code != ErrorCode.NOT_CONTROLLER:
                address, port = context.peer
                line = f"refused an envelope: {error} peer={address}:{port} error={error.code.name}"
                self._refusals.warning(log, line, address)
            return _Response(error_code=int(error.code))

    async def _served(self, context: RequestContext, envelope: Any) -> bytes:
        _check_principal(envelope.request_principal)
        address = _address(envelope.client_host_address)
        frame = memoryview(envelope.request_data)
        header = _header(frame)
        handler = self._handler(header)
        inner = RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id or "",
            context.listener_name,
            (address, context.peer[1]),
            context.received_ms,
            context.session,
            is_forwarded=True,
        )
        message = codec.request(handler.api_key)
        try:
            request = await decoded(
                message, frame, header.api_version, self._decoding, header.body_offset
            )
        except MalformedMessageError as cause:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"the request inside cannot be read: {cause}"
            ) from cause
        try:
            answer = handler.handle(inner, request)
            if isawaitable(answer):
                answer = await answer
        except CloseConnection as cause:  # it would close the broker's connection
            raise ApiError(ErrorCode.INVALID_REQUEST, cause.reason) from cause
        except Exception as cause:
            line = Incident.DEFECT.line(
                what=f"request failed: api={message.name} version={header.api_version}"
            )
            self._refusals.error(log, line, (message.name, type(cause)), exc_info=cause)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{message.name} failed") from cause
        return await _packed(header, answer)

    def _handler(self, header: RequestHeader) -> DecodedHandler:
        key, version = header.api_key, header.api_version
        if key not in FORWARDABLE:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"api key {key} is not for envelopes")
        handler = self._table.get(key)
        if handler is None or version not in handler.versions:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"version {version} of api key {key} is not served"
            )
        assert isinstance(handler, DecodedHandler), "they are decoded"
        return handler


def _check_principal(serialised: bytes | None) -> None:
    """Refuse a principal that Kafka's DefaultKafkaPrincipalBuilder cannot read."""
    try:
        data = serialised or b""
        version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
        _PRINCIPAL.decode(data, version, _VERSION_BYTES)
    except (MalformedMessageError, ValueError) as cause:
        raise ApiError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, f"the principal cannot be read: {cause}"
        ) from cause


def _address(packed: bytes) -> str:
    try:
        return str(ip_address(bytes(packed)))
    except ValueError as cause:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"the client's address has {len(packed)} bytes, not 4 or 16"
        ) from cause


def _header(frame: memoryview) -> RequestHeader:
    try:
        header = read_request_header(frame)
        ApiKey(header.api_key)
    except (MalformedMessageError, ValueError) as cause:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, f"the header inside cannot be read: {cause}"
        ) from cause
    return header


async def _packed(header: RequestHeader, answer: Any) -> bytes:
    """Encode an answer with its header; a long one in slices.

    Raises:
        ApiError: NOT_CONTROLLER, if a part of the answer has that error.
    """
    key, version = ApiKey(header.api_key), header.api_version
    if type(answer) is not list:
        if await run_in_steps(_says_not_controller(key, answer)):
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this is not the active controller")
        answer = await run_in_steps(codec.response(key).encode_steps(answer, version))
    header_version = header_versions(key, version)[1]
    parts, _ = response_parts(header.correlation_id, header_version, answer)
    return b"".join(parts)[_SIZE_BYTES:]  # type: ignore[arg-type]


def _says_not_controller(key: ApiKey, answer: Any) -> Steps[bool]:
    """True if the answer, or a part of it, has an error because another controller is active."""
    if key == ApiKey.DESCRIBE_QUORUM:
        return any(
            one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            for topic in answer.topics
            for one in topic.partitions
        )
    if key in {ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER}:
        return answer.error_code in {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER}
    pace = Pace()
    lists = (getattr(answer, name, ()) for name in ("topics", "responses", "results"))
    for one in chain((answer,), *lists):
        if getattr(one, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
            return True
        if pace.is_step_over():
            yield
    return False
