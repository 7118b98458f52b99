import pytest

from broker.config.broker_config import BrokerConfig
from broker.node.raft_config import moved_voter, own_endpoints
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet


def config(**given: str) -> BrokerConfig:
    settings = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "h:9093",
        "log.dirs": "/d",
        **{name.replace("_", "."): value for name, value in given.items()},
    }
    return BrokerConfig.load(settings)[0]


def voters(*endpoints: VoterEndpoint) -> VoterSet:
    return VoterSet((Voter(ReplicaKey(1, b"d" * 16), endpoints),))


AT_9093 = voters(VoterEndpoint("CONTROLLER", "h", 9093))


def test_a_port_that_the_voters_do_not_know_is_named_with_theirs() -> None:
    said = moved_voter(config(listeners="CONTROLLER://:9094"), AT_9093)
    assert said is not None
    assert "h:9093" in said
    assert "[9094]" in said


@pytest.mark.parametrize("known", [AT_9093, voters(), VoterSet(())])
def test_all_is_well_where_they_agree_or_nothing_is_known(known: VoterSet) -> None:
    assert moved_voter(config(listeners="CONTROLLER://:9093"), known) is None


def test_an_advertised_port_counts() -> None:
    behind = config(listeners="CONTROLLER://:1", advertised_listeners="CONTROLLER://h:9093")
    assert moved_voter(behind, AT_9093) is None


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"listeners": "CONTROLLER://h:9094"}, [("h", 9094)]),
        ({"listeners": "CONTROLLER://[::1]:9094"}, [("::1", 9094)]),
        ({"listeners": "CONTROLLER://:9094"}, []),
        ({"listeners": "CONTROLLER://0.0.0.0:9094"}, []),
        ({"listeners": "CONTROLLER://h:0"}, []),
        (
            {"listeners": "CONTROLLER://:1", "advertised_listeners": "CONTROLLER://[::1]:9093"},
            [("::1", 9093)],
        ),
        (
            {"listeners": "CONTROLLER://:1", "controller_quorum_voters": "1@h:9,2@i:9"},
            [],
        ),
        (
            {"listeners": "CONTROLLER://h:1", "controller_quorum_voters": "1@i:9,2@i:8"},
            [("h", 1)],
        ),
    ],
)
def test_one_that_names_its_host_says_where_it_is_and_needs_no_warning(
    given: dict[str, str], found: list[tuple[str, int]]
) -> None:
    settings = config(**given)
    said = own_endpoints(settings)
    assert [(one.host, one.port) for one in said] == found
    if found:
        assert moved_voter(settings, AT_9093) is None
