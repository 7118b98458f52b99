"""What is said of what is not served: ACLs to clients, transactions to operators."""

import logging
from typing import Any

import pytest

from broker.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from broker.handlers.create_acls import CreateAclsHandler
from broker.handlers.delete_acls import DeleteAclsHandler
from broker.handlers.describe_acls import DescribeAclsHandler
from broker.handlers.init_producer_id import InitProducerIdHandler
from broker.handlers.parts import NAMED_MAX, Unserved
from broker.network.registry import RequestContext
from kafka_protocol.errors import ErrorCode
from tests.support.worlds.data_plane import call

FILTER = {
    "resource_type_filter": 2,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
}
RULE = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
IN_KAFKAS_WORDS = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
TRANSACTIONAL = {
    "transactional_id": "payments",
    "transaction_timeout_ms": 1000,
    "producer_id": -1,
    "producer_epoch": -1,
}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_answered_as_by_kafka_without_an_authorizer(version: int) -> None:
    described = call(DescribeAclsHandler(), version, FILTER)
    assert described.error_code == ErrorCode.SECURITY_DISABLED
    assert described.error_message == "No Authorizer is configured on the broker"
    assert described.resources == []
    for count in range(3):
        made = call(CreateAclsHandler(), version, {"creations": [RULE] * count})
        assert [(one.error_code, one.error_message) for one in made.results] == (
            [IN_KAFKAS_WORDS] * count
        )
        gone = call(DeleteAclsHandler(), version, {"filters": [FILTER] * count})
        assert [(one.error_code, one.error_message) for one in gone.filter_results] == (
            [IN_KAFKAS_WORDS] * count
        )
        assert not any(one.matching_acls for one in gone.filter_results)


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


async def _no_block() -> tuple[int, int]:
    raise AssertionError("no id is given to a transactional producer")


def test_a_client_that_wants_transactions_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    unserved = Unserved()
    handler = InitProducerIdHandler(_no_block, unserved)
    for client_id in ("payments-1", "payments-1", "evil\nERROR all is lost"):
        call(handler, 4, TRANSACTIONAL, client_id)
    said = _warnings(caplog)
    assert len(said) == 2
    assert "Transactions are not served" in said[0]
    assert "client_id=payments-1 " in said[0]
    assert "without transactional.id" in said[0]
    assert "\n" not in said[1]


def test_each_thing_that_a_client_asks_for_is_said(caplog: pytest.LogCaptureFixture) -> None:
    unserved = Unserved()
    joining = {"group_id": "orders", "member_id": "m", "member_epoch": 0}
    for _ in range(2):
        call(InitProducerIdHandler(_no_block, unserved), 4, TRANSACTIONAL)
        call(ConsumerGroupHeartbeatHandler(unserved), 1, joining)
    assert len(_warnings(caplog)) == 2
    assert "group.protocol=classic" in _warnings(caplog)[1]


def test_clients_beyond_the_bound_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    unserved, fields = Unserved(), ("Transactions", "use none")
    for number in range(NAMED_MAX + 5):
        answered = unserved.refused(_context(f"c{number}"), *fields)
        assert answered == "Transactions are not served by this broker; use none."
    assert len(_warnings(caplog)) == NAMED_MAX + 1
    assert "not named" in _warnings(caplog)[-1]


def _context(client_id: str) -> Any:
    return RequestContext(10, 4, 7, client_id, "PLAINTEXT", ("127.0.0.1", 1), 0)


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize("epoch", [0, 5, -1, -2])
def test_members_of_the_consumer_protocol_are_sent_to_the_classic_one(
    version: int, epoch: int
) -> None:
    joining = {"group_id": "orders", "member_id": "m", "member_epoch": epoch}
    answer = call(ConsumerGroupHeartbeatHandler(Unserved()), version, joining)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (answer.member_id, answer.assignment) == (None, None)
    assert "orders" in answer.error_message
    assert "group.protocol=classic" in answer.error_message
