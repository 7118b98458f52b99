"""Configurations that cannot work end at once, with one message that helps and exit code 1."""

from collections.abc import Callable

import pytest

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess

MakeBroker = Callable[..., BrokerProcess]

REFUSED = {
    "replication factor of the metadata topic": (
        {"rlmm.config.remote.log.metadata.topic.replication.factor": "3"},
        ["rlmm.config.remote.log.metadata.topic.replication.factor", "3", "1"],
    ),
    "a plugin that is not there": (
        {"remote.log.storage.manager.class.name": "rsm_plugins.local_fs:Nothing"},
        ["remote.log.storage.manager.class.name", "rsm_plugins.local_fs:Nothing"],
    ),
    "a Java plugin of somebody else": (
        {"remote.log.storage.manager.class.name": "com.example.Storage"},
        ["com.example.Storage"],
    ),
    "encryption": (
        {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"},
        ["SSL", "PLAINTEXT"],
    ),
    "voters without this node": (
        {"controller.quorum.voters": "7@127.0.0.1:1,2@127.0.0.1:2"},
        ["controller.quorum.voters", "2@127.0.0.1:2", "node.id="],
    ),
    "a broker alone": (
        {"process.roles": "broker", "controller.quorum.voters": "9@127.0.0.1:1"},
        ["process.roles", "broker"],
    ),
    "a wrong number": ({"num.partitions": "many"}, ["num.partitions", "many"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_is_refused_by_name(make_broker: MakeBroker, what: str) -> None:
    settings, named = REFUSED[what]
    broker = make_broker(tiered=True)
    assert broker.format().returncode == 0
    broker.settings = settings
    ended = broker.start_to_end()
    assert ended.returncode == 1
    for word in named:
        assert word in ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout


def test_a_broker_without_its_tier_keeps_tiered_topics_offline_unchanged(
    make_broker: MakeBroker,
) -> None:
    """Only a process shows that a broker opens its logs by what its own tier is."""
    from confluent_kafka.admin import AdminClient, NewTopic

    broker = make_broker(tiered=True).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for name, tiered in (("tides", "true"), ("plain", "false")):
        topic = NewTopic(name, 1, 1, config={"remote.storage.enable": tiered})
        admin.create_topics([topic])[name].result(30)
        produce(broker, name, [(b"k", b"v")])
    assert broker.terminate() == 0
    broker.settings = {"remote.log.storage.system.enable": "false"}
    broker.start()
    assert "tides-0 is offline: its topic is tiered" in str(broker.health())
    assert read_all(broker, "plain") == [(0, b"k", b"v")]
    assert broker.terminate() == 0
    broker.settings = {}
    broker.start()
    assert read_all(broker, "tides") == [(0, b"k", b"v")]


@pytest.mark.smoke
def test_a_killed_and_a_stopped_tiered_broker_leave_no_process(make_broker: MakeBroker) -> None:
    broker = make_broker(tiered=True).start()
    first = broker.tier_pid()
    assert first is not None
    broker.kill()  # checks that the tier ends by itself
    broker.start()
    assert broker.tier_pid() not in (None, first)
    assert broker.terminate() == 0
    assert "Traceback" not in broker.log_text()
