"""What a client of a group protocol that is not served is told."""

import pytest

from broker.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from broker.handlers.parts import Unserved
from kafka_protocol.errors import ErrorCode
from tests.support.worlds.data_plane import call


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
