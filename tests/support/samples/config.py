"""Configurations for tests: a small valid one to change entry by entry, and one like Kafka's."""

from broker.config.broker_config import BrokerConfig

BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "data/one",
}
TIERED = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "rsm_plugins.local_fs:LocalFsRemoteStorageManager",
}


def load(**changes: str | None) -> BrokerConfig:
    """Load BASE with changes; `__` in a keyword stands for `.`, None removes an entry."""
    return load_entries({name.replace("__", "."): text for name, text in changes.items()})


def load_entries(changes: dict[str, str | None]) -> BrokerConfig:
    entries: dict[str, str | None] = {**BASE, **changes}
    config, _ = BrokerConfig.load(
        {name: text for name, text in entries.items() if text is not None}
    )
    return config


def warnings_of(changes: dict[str, str]) -> list[str]:
    return BrokerConfig.load({**BASE, **changes})[1]


def tiered() -> BrokerConfig:
    return load_entries(dict(TIERED))


# The shape of the server.properties that Apache Kafka ships, with everything the format allows.
SERVER_PROPERTIES = r"""
# Licensed to nobody in particular; a comment with = and : inside
! another kind of comment

############################# Server Basics #############################
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers = localhost:9093

listeners=PLAINTEXT://:9092,\
          CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names:CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads 3
num.io.threads=8
   socket.send.buffer.bytes	=	102400
log.dirs=data/kraft\ combined/logs
offsets.topic.replication.factor=1
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
