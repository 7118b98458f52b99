"""Keys of the node's identity and of the metadata quorum.

Names, types, defaults and ranges are those of Apache Kafka 4.3.
"""

from typing import Final

from broker.config.key import BOOLEAN, INT, LIST, LONG, STRING, Key

QUORUM_KEYS: Final[tuple[Key, ...]] = (
    Key(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        "Whether leadership returns to preferred replicas by itself.",
    ),
    Key(
        "broker.heartbeat.interval.ms",
        INT,
        "2000",
        "Interval of a broker's heartbeats to the controller.",
    ),
    Key(
        "broker.session.timeout.ms",
        INT,
        "9000",
        "Silence after which the controller fences a broker.",
    ),
    Key(
        "controller.quorum.append.linger.ms",
        INT,
        "25",
        "How long metadata records are collected at most while earlier ones are committed.",
        low=0,
    ),
    Key(
        "controller.quorum.election.backoff.max.ms",
        INT,
        "1000",
        "Longest wait of a proposed successor before it stands for election.",
        low=0,
    ),
    Key(
        "controller.quorum.election.timeout.ms",
        INT,
        "1000",
        "Time without votes after which a candidate starts a new election.",
        low=0,
    ),
    Key(
        "controller.quorum.fetch.max.bytes",
        INT,
        "1048576",
        "Most bytes of the metadata log in one fetch between controllers.",
        low=1,
    ),
    Key(
        "controller.quorum.fetch.snapshot.max.bytes",
        INT,
        "1048576",
        "Most bytes of a snapshot in one fetch between controllers.",
        low=1,
    ),
    Key(
        "controller.quorum.fetch.timeout.ms",
        INT,
        "2000",
        "Time without a successful fetch after which a follower seeks a new leader.",
        low=0,
    ),
    Key(
        "controller.quorum.request.timeout.ms",
        INT,
        "2000",
        "How long a request between controllers may take.",
        low=0,
    ),
    Key(
        "controller.quorum.retry.backoff.ms",
        INT,
        "20",
        "Wait before a failed request between controllers is tried again.",
        low=0,
    ),
    Key(
        "leader.imbalance.check.interval.seconds",
        LONG,
        "300",
        "How often the balance of leaders is checked.",
        low=1,
    ),
    Key(
        "metadata.max.idle.interval.ms",
        INT,
        "500",
        "How often an idle leader with listeners writes a no-op record; 0: never, not beside a "
        "tier.",
        low=0,
    ),
    Key("broker.id", INT, "-1", "Old name of `node.id`; must be equal when both are set."),
    Key(
        "broker.rack",
        STRING,
        None,
        "Name of the place this broker stands in; replicas are spread over racks.",
    ),
    Key(
        "controller.listener.names",
        LIST,
        None,
        "Names of the listeners that the controllers use.",
        required=True,
    ),
    Key(
        "controller.quorum.auto.join.enable",
        BOOLEAN,
        "false",
        "Whether a controller that has no vote asks for one, and its former disk loses it.",
    ),
    Key(
        "controller.quorum.bootstrap.servers",
        LIST,
        "",
        "host:port of controllers to find a quorum whose voters may change.",
    ),
    Key(
        "controller.quorum.voters",
        LIST,
        "",
        "Fixed voters of the metadata quorum, `id@host:port` each.",
    ),
    Key(
        "metadata.log.dir",
        STRING,
        None,
        "Directory of the metadata log; not set: the first of the log directories.",
        resource=True,
    ),
    Key(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        "20971520",
        "Bytes of metadata records after which a snapshot is written.",
        low=1,
    ),
    Key(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        "3600000",
        "Time after which a snapshot of the metadata is written; 0: off.",
        low=0,
    ),
    Key(
        "metadata.log.segment.bytes",
        INT,
        "1073741824",
        "Size at which a new segment of the metadata log is begun.",
        low=8388608,
    ),
    Key(
        "metadata.log.segment.ms",
        LONG,
        "604800000",
        "Age at which a new segment of the metadata log is begun.",
    ),
    Key(
        "metadata.max.retention.bytes",
        LONG,
        "104857600",
        "Size of metadata log and snapshots above which old ones go.",
    ),
    Key(
        "metadata.max.retention.ms",
        LONG,
        "604800000",
        "Age at which old metadata segments and snapshots go.",
    ),
    Key("node.id", INT, None, "Number of this node in the cluster.", low=0, required=True),
    Key(
        "process.roles",
        LIST,
        None,
        "What this node is: broker, controller or both.",
        choices=("broker", "controller"),
        non_empty=True,
        required=True,
    ),
    Key(
        "unclean.leader.election.interval.ms",
        LONG,
        "300000",
        "How often partitions without leader are looked at for an unclean election.",
        low=1,
        internal=True,
    ),
)
