"""Which roles run so far, and in which quorum."""

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.node.raft_config import check_broker_among_several
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet
from tests.support.samples.config import BASE, TIERED

CONTROLLER = {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:9093"}
THREE = {"controller.quorum.voters": "1@a:1,2@b:2,3@c:3"}


def configured(*more: dict[str, str]) -> BrokerConfig:
    entries = dict(BASE) | {"node.id": "1"}
    for one in more:
        entries |= one
    return BrokerConfig.load(entries)[0]


def voters(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(ReplicaKey(one)) for one in ids))


@pytest.mark.parametrize("roles", [CONTROLLER, {}], ids=["controller", "combined"])
def test_a_controller_runs_in_any_quorum(roles: dict[str, str]) -> None:
    config = configured(roles, THREE)
    check_broker_among_several(config, voters(1, 2, 3))
    check_broker_among_several(config, voters())


def test_a_tier_needs_the_only_controller() -> None:
    config = configured(TIERED, THREE)
    with pytest.raises(ConfigError, match=r"remote.log.storage.system.enable.*\[1, 2, 3\].*false"):
        check_broker_among_several(config, voters(1, 2, 3))


def test_a_tier_among_several_controllers_needs_their_idle_records() -> None:
    config = configured(TIERED, THREE, {"metadata.max.idle.interval.ms": "0"})
    with pytest.raises(ConfigError, match=r"metadata.max.idle.interval.ms.*above 0"):
        check_broker_among_several(config, voters(1, 2, 3))
