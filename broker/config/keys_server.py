"""Keys of listeners, connections, requests, quotas and defaults of new topics.

Names, types, defaults and ranges are those of Apache Kafka 4.3.
"""

from typing import Final

from broker.config.key import BOOLEAN, INT, LIST, LONG, STRING, Dynamic, Key

PER_BROKER = Dynamic.PER_BROKER
CLUSTER_WIDE = Dynamic.CLUSTER_WIDE

SERVER_KEYS: Final[tuple[Key, ...]] = (
    Key(
        "advertised.listeners",
        LIST,
        None,
        "Addresses that clients are given, NAME://host:port each; not set: as `listeners`.",
    ),
    Key(
        "auto.create.topics.enable",
        BOOLEAN,
        "true",
        "Whether asking for an unknown topic may create it.",
    ),
    Key(
        "connections.max.idle.ms",
        LONG,
        "600000",
        "A connection without traffic for this long is closed; negative: never.",
    ),
    Key("default.replication.factor", INT, "1", "Replicas of a topic created without a count."),
    Key("delete.topic.enable", BOOLEAN, "true", "Whether topics may be deleted."),
    Key(
        "fetch.max.bytes",
        INT,
        "57671680",
        "Most bytes in one fetch answer; a client may ask for fewer.",
        low=1024,
    ),
    Key("inter.broker.listener.name", STRING, None, "Listener that brokers use among themselves."),
    Key(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener name speaks.",
        dynamic=PER_BROKER,
        resource=True,
    ),
    Key(
        "listeners",
        LIST,
        "PLAINTEXT://:9092",
        "Addresses this node listens on, NAME://host:port each.",
        dynamic=PER_BROKER,
        non_empty=True,
        resource=True,
    ),
    Key(
        "max.connections",
        INT,
        "2147483647",
        "Connections open at once on this broker.",
        low=0,
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "max.connections.per.ip",
        INT,
        "2000",  # DIFFERS: no limit in Kafka; then one client can take every descriptor
        "Connections open at once from one address (Kafka: no limit).",
        low=0,
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Limits for single addresses, `host:count` each.",
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        "Fetch sessions remembered at once.",
        low=0,
    ),
    Key(
        "max.request.partition.size.limit",
        INT,
        "2000",
        "Most partitions in one answer of DescribeTopicPartitions.",
        low=1,
    ),
    Key("num.partitions", INT, "1", "Partitions of a topic created without a count.", low=1),
    Key(
        "queued.max.request.bytes",
        LONG,
        "268435456",  # DIFFERS: no bound in Kafka; then one client can take all memory
        "Memory for requests above 32 KiB, of all connections; -1: no bound (Kafka's default).",
    ),
    Key(
        "socket.listen.backlog.size", INT, "50", "Connections that may wait to be accepted.", low=1
    ),
    Key(
        "socket.receive.buffer.bytes",
        INT,
        "102400",
        "Receive buffer of client sockets; -1: the system's default.",
    ),
    Key("socket.request.max.bytes", INT, "104857600", "Largest request frame that is read.", low=1),
    Key(
        "socket.send.buffer.bytes",
        INT,
        "102400",
        "Send buffer of client sockets; -1: the system's default.",
    ),
    Key(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "Security protocol among brokers, when no listener is named for it.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
)
