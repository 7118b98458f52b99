"""What a stranger at the controllers' listener of a combined node can do to its broker: nothing.

Only a whole process shows that its listener has the guard and that its own broker goes round it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.process import BrokerProcess, running
from tests.support.brokers.raw_client import RawClient

pytestmark = pytest.mark.smoke

EPOCHS = range(40)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    yield from running(BrokerProcess(tmp_path))


def told_brokers(broker: BrokerProcess) -> list[tuple[int, str, int]]:
    with RawClient(broker) as client:
        answer = client.ask(ApiKey.METADATA, 12, {"topics": None})
    return [(one.node_id, one.host, one.port) for one in answer.brokers]


def registration(broker_id: int) -> dict[str, object]:
    listener = {"name": "PLAINTEXT", "host": "10.0.0.66", "port": 9999, "security_protocol": 0}
    levels = {"min_supported_version": 1, "max_supported_version": 29}
    return {
        "broker_id": broker_id,
        "cluster_id": "x",
        "incarnation_id": b"s" * 16,
        "listeners": [listener],
        "features": [{"name": "metadata.version", **levels}],
        "log_dirs": [b"d" * 16],
    }


def test_no_frame_puts_the_broker_out_or_takes_its_id(broker: BrokerProcess) -> None:
    before = told_brokers(broker)
    with RawClient(broker, broker.controller_port) as stranger:
        answer = stranger.ask(ApiKey.BROKER_REGISTRATION, 3, registration(broker.node_id))
        assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        for epoch in EPOCHS:  # the right one, the offset of a registration, is among them
            me = {"broker_id": broker.node_id, "broker_epoch": epoch}
            beat = me | {"current_metadata_offset": 10**6, "want_fence": True}
            codes = {
                stranger.ask(ApiKey.BROKER_HEARTBEAT, 0, beat).error_code,
                stranger.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, me).error_code,
                stranger.ask(
                    ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, me | {"directories": []}
                ).error_code,
            }
            assert codes == {ErrorCode.STALE_BROKER_EPOCH}
    assert told_brokers(broker) == before
    assert broker.health()["parts"]["membership"] == "green"
    assert "in the name of this node's own broker was refused" in broker.log_text()
    with RawClient(broker) as client:
        made = client.ask(
            ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1}
        )
    assert made.error_code == 0, "its own broker still gets producer ids"
