"""Which settings stand in the way of a remote tier beside a quorum."""

from typing import Any

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.node.raft_config import check_idle_records_among_several
from broker.process.quorum_member import QuorumMember
from tests.support.samples.config import BASE, TIERED
from tests.support.sim.ports import simulated

THREE = {"controller.quorum.voters": "1@a:1,2@b:2,3@c:3"}


@pytest.mark.parametrize("interval_ms", ["0", "10001"])
def test_a_tier_among_several_controllers_needs_their_idle_records(interval_ms: str) -> None:
    entries = BASE | THREE | {"node.id": "1", "metadata.max.idle.interval.ms": interval_ms}
    check_idle_records_among_several(BrokerConfig.load(entries)[0])
    refusal = rf"metadata.max.idle.interval.ms={interval_ms}: must be from 1 to 10000"
    with pytest.raises(ConfigError, match=refusal):
        check_idle_records_among_several(BrokerConfig.load(entries | TIERED)[0])


@pytest.mark.parametrize("interval_ms", ["1", "10000"])
def test_idle_records_that_are_frequent_enough_pass_beside_a_tier(interval_ms: str) -> None:
    entries = BASE | THREE | TIERED | {"node.id": "1"}
    entries["metadata.max.idle.interval.ms"] = interval_ms
    check_idle_records_among_several(BrokerConfig.load(entries)[0])


async def test_a_controller_of_tiered_topics_is_refused_before_it_takes_part() -> None:
    entries = BASE | THREE | TIERED | {"node.id": "1", "metadata.max.idle.interval.ms": "25000"}
    not_reached: Any = None
    config = BrokerConfig.load(entries)[0]
    member = QuorumMember(config, not_reached, not_reached, simulated())
    with pytest.raises(ConfigError, match=r"metadata.max.idle.interval.ms=25000"):
        await member.begin(not_reached, not_reached, not_reached)
