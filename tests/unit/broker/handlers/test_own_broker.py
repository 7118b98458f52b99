"""Nobody at a controllers' listener speaks for the broker in the controller's own process."""

import logging
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

import pytest

from broker.config.live_config import LiveConfig
from broker.handlers.controllers.changes import ChangeParts, FromTheWire, add_change_handlers
from broker.network.registry import DecodedHandler, HandlerTable, RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.schema import Versions
from metadata_topic.image.image import EMPTY_IMAGE
from metadata_topic.quorum.active.decisions import Done
from tests.support.samples.config import TIERED, load_entries
from tests.support.sim.clock import ManualClock

OWN, OTHER = 1, 2
REFUSED = {
    ApiKey.BROKER_REGISTRATION: ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT: ErrorCode.STALE_BROKER_EPOCH,
    ApiKey.ALLOCATE_PRODUCER_IDS: ErrorCode.STALE_BROKER_EPOCH,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ErrorCode.STALE_BROKER_EPOCH,
    ApiKey.ALTER_PARTITION: ErrorCode.STALE_BROKER_EPOCH,
}


class Here(DecodedHandler):
    """The handler behind; says yes to all."""

    versions = Versions(0, 0)

    def __init__(self, api_key: ApiKey) -> None:
        self.api_key = api_key

    def handle(self, context: RequestContext, request: Any) -> Any:
        return response(self.api_key).cls()


@pytest.mark.parametrize("api_key", REFUSED)
def test_only_other_ids_are_spoken_for_on_the_wire(
    api_key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    handler = FromTheWire(Here(api_key), OWN, ManualClock())
    context = RequestContext(api_key, 0, 1, "x\ny", "CONTROLLER", ("10.0.0.66", 1), 0)
    cls = request(api_key).cls
    assert handler.handle(context, cls(broker_id=OTHER)).error_code == 0
    assert caplog.messages == []
    for _ in range(3):
        assert handler.handle(context, cls(broker_id=OWN)).error_code == REFUSED[api_key]
    (line,) = caplog.messages
    assert "10.0.0.66" in line
    assert "\n" not in line


@pytest.mark.parametrize("api_key", REFUSED)
def test_a_controller_that_is_not_active_speaks_of_nobody(
    api_key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker in its process meets it at another's address, and would end as one replaced."""
    handler = FromTheWire(Here(api_key), OWN, ManualClock(), is_active=lambda: False)
    context = RequestContext(api_key, 0, 1, "b", "CONTROLLER", ("10.0.0.66", 1), 0)
    assert handler.handle(context, request(api_key).cls(broker_id=OWN)).error_code == 0
    assert caplog.messages == []


@pytest.mark.parametrize("api_key", REFUSED)
def test_no_other_broker_registers_with_a_tier_that_has_no_cluster_secret(
    api_key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    """Their tiers could not authenticate themselves at each other's brokers."""
    handler = FromTheWire(Here(api_key), OWN, ManualClock(), lone_tier=True)
    context = RequestContext(api_key, 0, 1, "b", "CONTROLLER", ("10.0.0.66", 1), 0)
    is_refused = api_key == ApiKey.BROKER_REGISTRATION
    code = ErrorCode.POLICY_VIOLATION if is_refused else ErrorCode.NONE
    answer = handler.handle(context, request(api_key).cls(broker_id=OTHER))
    assert answer.error_code == code
    assert len(caplog.messages) == is_refused


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [({}, False), (TIERED, True), (TIERED | {"tidemark.cluster.secret.file": "/s"}, False)],
    ids=["no tier", "a lone tier", "a tier with the secret"],
)
async def test_other_brokers_register_unless_a_tier_lacks_the_secret(
    settings: dict[str, str | None], *, is_refused: bool
) -> None:
    def register(_cluster_id: str, _registration: Any, done: Any, **_: Any) -> None:
        done(Done(7))

    unused: Any = None
    brokers: Any = SimpleNamespace(register=register, is_active=True, election_defaults=None)
    table = HandlerTable()
    add_change_handlers(
        table,
        ChangeParts(
            live=LiveConfig(load_entries(settings), lambda: EMPTY_IMAGE),
            cluster=unused,
            creation=unused,
            submit=unused,
            brokers=brokers,
            own_broker_id=OWN,
            clock=ManualClock(),
        ),
    )
    key = ApiKey.BROKER_REGISTRATION
    handler: Any = table.get(key)
    context = RequestContext(key, 4, 1, "b", "CONTROLLER", ("10.0.0.66", 1), 0)
    answer = handler.handle(context, request(key).cls(broker_id=OTHER))
    if isawaitable(answer):
        answer = await answer
    code = ErrorCode.POLICY_VIOLATION if is_refused else ErrorCode.NONE
    assert ErrorCode.of(answer.error_code) is code
