"""InitProducerId and ApiVersions."""

import asyncio
from typing import Any

import pytest

from broker.handlers.api_versions import ApiVersionsHandler, Features
from broker.handlers.init_producer_id import InitProducerIdHandler
from broker.handlers.parts import Unserved
from broker.network.registry import DecodedHandler, Handler, HandlerTable, RequestContext
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from tests.support.worlds.data_plane import call, finish, start

IDEMPOTENT = {"transactional_id": None, "transaction_timeout_ms": 1000}


class Blocks:
    """A controller that gives blocks of three ids, slowly."""

    def __init__(self, error: Exception | None = None) -> None:
        self.given, self.error = 0, error

    async def allocate(self) -> tuple[int, int]:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.given += 1
        return self.given * 100, self.given * 100 + 3


@pytest.mark.parametrize("version", range(6))
async def test_ids_are_never_given_twice_and_blocks_are_shared(version: int) -> None:
    blocks = Blocks()
    handler = InitProducerIdHandler(blocks.allocate, Unserved())

    async def one() -> Any:
        answer = start(handler, version, IDEMPOTENT)
        return finish(handler, version, await answer if asyncio.iscoroutine(answer) else answer)

    answers = await asyncio.gather(*(one() for _ in range(10)))
    assert all(a.error_code == 0 and a.producer_epoch == 0 for a in answers)
    assert len({a.producer_id for a in answers}) == 10
    assert blocks.given == 4


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": "tx"}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_had_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    answer = call(InitProducerIdHandler(Blocks().allocate, Unserved()), 4, IDEMPOTENT | fields)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


def test_a_controller_that_fails_is_asked_again_by_the_client() -> None:
    blocks = Blocks(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
    handler = InitProducerIdHandler(blocks.allocate, Unserved())
    assert call(handler, 4, IDEMPOTENT).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    blocks.error = None
    assert call(handler, 4, IDEMPOTENT).error_code == 0


class Listed(DecodedHandler):
    """An API that is only listed."""

    def __init__(
        self, api_key: ApiKey, first: int, last: int, advertised: int | None = None
    ) -> None:
        self.api_key, self.versions = api_key, Versions(first, last)
        self.advertised_min_version = advertised

    def handle(self, context: RequestContext, request: Any) -> Any:
        raise AssertionError("not called")


def versions_handler(features: Features | None = None) -> Handler:
    table = HandlerTable([Listed(ApiKey.PRODUCE, 3, 13, advertised=0), Listed(ApiKey.FETCH, 4, 18)])
    handler = ApiVersionsHandler(table, lambda: features or Features({}, {}, -1))
    table.add(handler)
    return handler


SOFTWARE = {"client_software_name": "librdkafka", "client_software_version": "2.11.1"}


@pytest.mark.parametrize("version", range(5))
def test_what_is_served_is_listed(version: int) -> None:
    answer = call(versions_handler(), version, SOFTWARE)
    assert answer.error_code == 0
    assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [
        (0, 0, 13),
        (1, 4, 18),
        (18, 0, 4),
    ]


@pytest.mark.parametrize("version", [3, 4])
def test_features_are_told_as_old_clients_can_read_them(version: int) -> None:
    supported = {"metadata.version": (7, 30), "kraft.version": (0, 1)}
    features = Features(supported, {"metadata.version": 30, "kraft.version": 0}, 17)
    answer = call(versions_handler(features), version, SOFTWARE)
    told = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
    assert told == (supported if version >= 4 else {"metadata.version": (7, 30)})
    assert answer.finalized_features_epoch == 17
    assert [
        (f.name, f.min_version_level, f.max_version_level) for f in answer.finalized_features
    ] == [("metadata.version", 30, 30)]


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n", "é", "a-"])
def test_odd_software_names_are_invalid(name: str) -> None:
    for fields in (
        {"client_software_name": name, "client_software_version": "1"},
        {"client_software_name": "a", "client_software_version": name},
    ):
        answer = call(versions_handler(), 3, fields)
        assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])
