"""The settings of the quorum reach the Raft core."""

from dataclasses import replace

from broker.config.broker_config import BrokerConfig
from broker.node.metadata_log import metadata_log_config
from broker.node.raft_config import quorum_settings, raft_config
from metadata_topic.quorum.start.quorum_start import FoundQuorum, plan_quorum_start
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.messages import NOBODY, Node
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, VoterEndpoint

BASE = {
    "process.roles": "controller",
    "node.id": "2",
    "listeners": "CTL://127.0.0.1:9094",
    "listener.security.protocol.map": "CTL:PLAINTEXT",
    "controller.listener.names": "CTL",
    "log.dirs": "logs",
}
VOTERS = {"controller.quorum.voters": "1@a:9093,2@b:9094,3@[::1]:9095"}
NEW = FoundQuorum(
    directory="d",
    election=None,
    history=((0, QuorumFacts()),),
    end_offset=0,
    newest_snapshot=None,
)


def configured(**more: str) -> tuple[BrokerConfig, RaftConfig]:
    config, warnings = BrokerConfig.load(BASE | {k.replace("_", "."): v for k, v in more.items()})
    assert warnings == []
    start = plan_quorum_start(ReplicaKey(2, b"d" * 16), quorum_settings(config), NEW)
    made = raft_config(config)
    return config, replace(made, bootstrap=start.bootstrap, static_nodes=start.static_nodes)


def test_defaults_are_kafkas() -> None:
    config, made = configured(**VOTERS)
    assert made == RaftConfig(
        listener_name="CTL",
        endpoints=(VoterEndpoint("CTL", "127.0.0.1", 9094),),
        fetch_max_bytes=1 << 20,
        static_nodes=(Node(1, "a", 9093), Node(2, "b", 9094), Node(3, "::1", 9095)),
        bootstrap=(Node(NOBODY, "a", 9093), Node(NOBODY, "::1", 9095)),
    )
    assert metadata_log_config(config).append_linger_ms == 25


def test_every_setting_has_its_field() -> None:
    config, made = configured(
        controller_quorum_bootstrap_servers="x:1,[::2]:2",
        controller_quorum_election_timeout_ms="11",
        controller_quorum_fetch_timeout_ms="12",
        controller_quorum_election_backoff_max_ms="13",
        controller_quorum_request_timeout_ms="14",
        controller_quorum_retry_backoff_ms="15",
        controller_quorum_append_linger_ms="16",
        controller_quorum_fetch_max_bytes="17",
        controller_quorum_fetch_snapshot_max_bytes="18",
    )
    assert made == RaftConfig(
        listener_name="CTL",
        endpoints=(VoterEndpoint("CTL", "127.0.0.1", 9094),),
        election_timeout_ms=11,
        fetch_timeout_ms=12,
        election_backoff_max_ms=13,
        request_timeout_ms=14,
        retry_backoff_ms=15,
        fetch_max_bytes=17,
        snapshot_max_bytes=18,
        bootstrap=(Node(NOBODY, "x", 1), Node(NOBODY, "::2", 2)),
    )
    assert metadata_log_config(config).append_linger_ms == 16


def test_a_timeout_of_nothing_is_a_millisecond() -> None:
    _, made = configured(**VOTERS, controller_quorum_election_timeout_ms="0")
    assert made.election_timeout_ms == 1


def test_a_broker_cannot_vote() -> None:
    _, made = configured(
        process_roles="broker",
        listeners="B://127.0.0.1:9092",
        listener_security_protocol_map="B:PLAINTEXT,CTL:PLAINTEXT",
        inter_broker_listener_name="B",
        controller_quorum_voters="1@a:9093",
    )
    assert not made.can_vote
