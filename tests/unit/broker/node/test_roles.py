"""Which settings stand in the way of a remote tier beside a quorum."""

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.node.raft_config import check_idle_records_among_several
from tests.support.samples.config import BASE, TIERED

THREE = {"controller.quorum.voters": "1@a:1,2@b:2,3@c:3"}


def test_a_tier_among_several_controllers_needs_their_idle_records() -> None:
    entries = BASE | THREE | {"node.id": "1", "metadata.max.idle.interval.ms": "0"}
    check_idle_records_among_several(BrokerConfig.load(entries)[0])
    with pytest.raises(ConfigError, match=r"metadata.max.idle.interval.ms.*above 0"):
        check_idle_records_among_several(BrokerConfig.load(entries | TIERED)[0])
