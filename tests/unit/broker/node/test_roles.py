"""Which roles run so far, and in which quorum."""

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.node.roles import check_roles, check_voters
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet
from tests.support.samples.config import BASE

CONTROLLER = {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:9093"}
BROKER = {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"}
THREE = {"controller.quorum.voters": "1@a:1,2@b:2,3@c:3"}


def configured(*more: dict[str, str]) -> BrokerConfig:
    entries = dict(BASE) | {"node.id": "1"}
    for one in more:
        entries |= one
    return BrokerConfig.load(entries)[0]


def voters(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(ReplicaKey(one)) for one in ids))


def test_a_controller_runs_in_any_quorum() -> None:
    config = configured(CONTROLLER, THREE)
    check_roles(config)
    check_voters(config, voters(1, 2, 3))
    check_voters(config, voters())


def test_a_broker_alone_is_refused() -> None:
    config = configured(BROKER, {"controller.quorum.voters": "9@a:1"})
    with pytest.raises(ConfigError, match="must name controller"):
        check_roles(config)


def test_a_broker_and_controller_must_be_the_only_voter() -> None:
    with pytest.raises(ConfigError, match=r"2@b:2.*only voter"):
        check_roles(configured(THREE))
    config = configured({"controller.quorum.voters": "1@a:1"})
    check_roles(config)
    check_voters(config, voters(1))
    for others in (voters(1, 2, 3), voters(2), voters()):
        with pytest.raises(ConfigError, match="only voter"):
            check_voters(config, others)
