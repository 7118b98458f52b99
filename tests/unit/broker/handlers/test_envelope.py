"""An envelope is served as what is in it, and refused with the codes of Kafka's EnvelopeUtils."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from broker.config.live_config import LiveConfig
from broker.handlers.add_raft_voter import AddRaftVoterHandler
from broker.handlers.alter_configs import AlterConfigsHandler
from broker.handlers.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from broker.handlers.controllers.envelope import FORWARDABLE, EnvelopeHandler
from broker.handlers.create_partitions import CreatePartitionsHandler
from broker.handlers.create_topics import CreateTopicsHandler
from broker.handlers.delete_topics import DeleteTopicsHandler
from broker.handlers.describe_quorum import DescribeQuorumHandler
from broker.handlers.elect_leaders import ElectLeadersHandler
from broker.handlers.handler_table import FORWARDED
from broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from broker.handlers.list_partition_reassignments import ListPartitionReassignmentsHandler
from broker.handlers.remove_raft_voter import RemoveRaftVoterHandler
from broker.handlers.unregister_broker import UnregisterBrokerHandler
from broker.handlers.update_features import UpdateFeaturesHandler
from broker.network.authentication import ANONYMOUS
from broker.network.dispatch import decoders
from broker.network.registry import CloseConnection, DecodedHandler, HandlerTable, RequestContext
from broker.node.envelope import answer_in, envelope_of
from broker.topics.creation import TopicCreation
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.types import CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.controller.topics import CreatedTopic
from runtime.ports import system_ports

VERSION = 7
END = 71
"""Up to where the image of the controller has the log."""
CLIENT = RequestContext(19, VERSION, 5, "cläire", "PLAINTEXT", ("10.1.2.3", 4), 0)
BROKER = RequestContext(58, 0, 9, "broker", "CONTROLLER", ("127.0.0.1", 1), 0)
KAFKAS_ANONYMOUS = bytes.fromhex("000005557365720a414e4f4e594d4f555300" + "00")
"""DefaultKafkaPrincipalBuilder.serialize(KafkaPrincipal.ANONYMOUS) of Kafka 4.3.1."""


class Creates(DecodedHandler):
    """Serves CreateTopics; its one topic gets `error`, or it raises that."""

    api_key, versions = ApiKey.CREATE_TOPICS, Versions(2, 7)

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.contexts: list[RequestContext] = []
        self.requests: list[Any] = []

    async def handle(self, context: RequestContext, request: Any) -> Any:
        self.contexts.append(context)
        self.requests.append(request)
        if isinstance(self.error, KafkaError):
            return CreateTopicsHandler.refuse(self, context, request, self.error)  # type: ignore[arg-type]
        if self.error is not None:
            raise self.error
        cls = response(ApiKey.CREATE_TOPICS).cls
        return cls(topics=[cls.Topics(name=one.name) for one in request.topics])


@asynccontextmanager
async def served(here: DecodedHandler) -> AsyncIterator[EnvelopeHandler]:
    ports = system_ports(asyncio.get_running_loop())
    try:
        yield EnvelopeHandler(
            HandlerTable([here]), lambda: END, decoders(ports.executors), ports.clock
        )
    finally:
        ports.executors.shutdown()


def creating(*names: str) -> Any:
    cls = request(ApiKey.CREATE_TOPICS).cls
    return cls(topics=[cls.Topics(name=one, num_partitions=1) for one in names], timeout_ms=1)


@pytest.mark.parametrize("count", [1, 10_000], ids=["short", "long"])
async def test_the_handler_sees_the_client_and_the_client_gets_its_answer(count: int) -> None:
    here = Creates()
    names = [f"t{number}" for number in range(count)]
    envelope = await envelope_of(CLIENT, creating(*names))
    assert envelope.request_principal == KAFKAS_ANONYMOUS
    async with served(here) as handler:
        sealed = await handler.handle(BROKER, envelope)
    assert sealed.metadata_end == END
    body = answer_in(sealed, CLIENT)
    answer, end = response(ApiKey.CREATE_TOPICS).decode(body, VERSION)
    assert end == len(body)
    assert [one.name for one in answer.topics] == names
    (seen,) = here.contexts
    assert seen.peer[0] == "10.1.2.3"
    assert (seen.client_id, seen.correlation_id) == ("cläire", 5)
    assert seen.session.principal == ANONYMOUS


async def test_a_client_id_that_has_grown_by_reading_is_cut() -> None:
    """A byte that is no UTF-8 is three when it is written again."""
    client_id = "\ufffd" * 20_000
    context = RequestContext(19, VERSION, 5, client_id, "PLAINTEXT", ("10.1.2.3", 4), 0)
    here = Creates()
    async with served(here) as handler:
        sealed = await handler.handle(BROKER, await envelope_of(context, creating("t")))
    assert ErrorCode.of(sealed.error_code) is ErrorCode.NONE
    assert here.contexts[0].client_id.startswith("\ufffd" * 10_000)


class Creation:
    """Makes every topic; knows which."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def create(self, topics: list[Any], **_: Any) -> list[CreatedTopic]:
        self.names += [one.name for one in topics]
        return [CreatedTopic(one.name, num_partitions=1, replication_factor=1) for one in topics]


async def test_brokers_create_the_remote_metadata_topic_and_clients_cannot() -> None:
    creation = Creation()
    here = CreateTopicsHandler(
        cast("TopicCreation", creation), cast("LiveConfig", None), brokers_ask=True
    )
    asked = creating(REMOTE_LOG_METADATA_TOPIC, CLUSTER_METADATA_TOPIC)
    context = RequestContext(19, 4, 5, "broker", "CONTROLLER", ("127.0.0.1", 1), 0)
    own = await here.handle(context, asked)
    codes = {one.name: one.error_code for one in own.topics}
    assert codes == {
        REMOTE_LOG_METADATA_TOPIC: ErrorCode.NONE,
        CLUSTER_METADATA_TOPIC: ErrorCode.POLICY_VIOLATION,
    }
    async with served(here) as handler:
        sealed = await handler.handle(BROKER, await envelope_of(CLIENT, asked))
    answer, _ = response(ApiKey.CREATE_TOPICS).decode(answer_in(sealed, CLIENT), VERSION)
    assert {one.error_code for one in answer.topics} == {ErrorCode.POLICY_VIOLATION}
    assert creation.names == [REMOTE_LOG_METADATA_TOPIC]


def _header(key: int, version: int = 0) -> bytes:
    return key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\5\0\0\0"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"request_principal": b""}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\1\0\0\0\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"\1\2\3"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b""}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": _header(19, 7)[:9]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": _header(999)}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": _header(ApiKey.ENVELOPE)}, ErrorCode.INVALID_REQUEST),
        ({"request_data": _header(ApiKey.BROKER_HEARTBEAT)}, ErrorCode.INVALID_REQUEST),
        ({"request_data": _header(ApiKey.PRODUCE, 9)}, ErrorCode.INVALID_REQUEST),
        ({"request_data": _header(ApiKey.CREATE_TOPICS, 8)}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": _header(ApiKey.DELETE_TOPICS, 6)}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": _header(ApiKey.CREATE_TOPICS, 7)}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_a_bad_envelope_is_refused_and_nothing_is_asked(
    fields: dict[str, Any], code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    envelope = await envelope_of(CLIENT, creating("t"))
    for name, value in fields.items():
        setattr(envelope, name, value)
    here = Creates()
    async with served(here) as handler:
        answer = await handler.handle(BROKER, envelope)
    assert (ErrorCode.of(answer.error_code), answer.response_data) == (code, None)
    assert here.requests == []
    assert len([one for one in caplog.records if "refused an envelope" in one.message]) == 1
    with pytest.raises(ApiError):
        answer_in(answer, CLIENT)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotControllerError("another"), ErrorCode.NOT_CONTROLLER),
        (CloseConnection("no"), ErrorCode.INVALID_REQUEST),
        (RuntimeError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_what_the_handler_cannot_do_is_an_error_of_the_envelope(
    error: BaseException, code: ErrorCode
) -> None:
    async with served(Creates(error)) as handler:
        answer = await handler.handle(BROKER, await envelope_of(CLIENT, creating("t")))
    assert (ErrorCode.of(answer.error_code), answer.response_data) == (code, None)


class Refuses(DecodedHandler):
    """A handler of an API that is forwarded, at a controller that is not active."""

    def __init__(self, refusing: Any) -> None:
        self.api_key, self.versions, self.refusing = (
            refusing.api_key,
            refusing.versions,
            refusing,
        )

    def handle(self, context: RequestContext, request: Any) -> Any:
        return self.refusing.refuse(context, request, NotControllerError("another"))


UNUSED: Any = None
REFUSING = [
    AlterConfigsHandler(UNUSED, UNUSED),
    CreatePartitionsHandler(UNUSED),
    CreateTopicsHandler(UNUSED, UNUSED),
    DeleteTopicsHandler(UNUSED, UNUSED, enabled=True),
    DescribeQuorumHandler(UNUSED),
    IncrementalAlterConfigsHandler(UNUSED, UNUSED),
    UnregisterBrokerHandler(UNUSED),
    ElectLeadersHandler(UNUSED, UNUSED),
    UpdateFeaturesHandler(UNUSED),
    AlterPartitionReassignmentsHandler(UNUSED, UNUSED),
    ListPartitionReassignmentsHandler(UNUSED),
    AddRaftVoterHandler(UNUSED),
    RemoveRaftVoterHandler(UNUSED),
]


@pytest.mark.parametrize("refusing", REFUSING, ids=lambda one: one.api_key.name)
async def test_every_refusal_that_another_leads_has_the_broker_look_for_it(refusing: Any) -> None:
    key, version = refusing.api_key, refusing.versions.last
    asked = request(key).cls()
    name = next((one for one in ("topics", "resources") if hasattr(asked, one)), None)
    if name is not None:
        entry = getattr(request(key).cls, name.title())()
        if key == ApiKey.DESCRIBE_QUORUM:
            entry.partitions = [entry.Partitions()]
        setattr(asked, name, [entry])
    context = RequestContext(key, version, 5, "", "PLAINTEXT", ("10.1.2.3", 4), 0)
    async with served(Refuses(refusing)) as handler:
        answer = await handler.handle(BROKER, await envelope_of(context, asked))
    assert ErrorCode.of(answer.error_code) is ErrorCode.NOT_CONTROLLER
    with pytest.raises(NotControllerError):
        answer_in(answer, context)


def test_every_api_that_is_forwarded_is_refused_above() -> None:
    assert {one.api_key for one in REFUSING} == FORWARDED


async def test_an_answer_to_another_request_is_refused() -> None:
    async with served(Creates()) as handler:
        answer = await handler.handle(BROKER, await envelope_of(CLIENT, creating("t")))
    other = RequestContext(19, VERSION, 6, "", "PLAINTEXT", ("10.1.2.3", 4), 0)
    with pytest.raises(ApiError, match="an answer to another"):
        answer_in(answer, other)


def test_all_that_is_forwarded_may_be_in_an_envelope() -> None:
    assert FORWARDED <= FORWARDABLE
