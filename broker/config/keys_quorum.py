"""Who this node is, and the metadata quorum.

Names, types, defaults and ranges are those of Apache Kafka 4.3.
"""

from typing import Final

from broker.config.key import INT, LIST, LONG, STRING, Key

QUORUM_KEYS: Final[tuple[Key, ...]] = (
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
)
