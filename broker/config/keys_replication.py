"""Replication between brokers, and the waiting lists of requests.

Names, types, defaults and ranges are those of Apache Kafka 4.3. `effect=False`: known, checked,
described, but it changes nothing here.
"""

from typing import Final

from broker.config.key import ConfigType, Dynamic, Key

BOOLEAN, INT, LIST, LONG, STRING = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.LIST,
    ConfigType.LONG,
    ConfigType.STRING,
)
PER_BROKER = Dynamic.PER_BROKER
CLUSTER_WIDE = Dynamic.CLUSTER_WIDE

REPLICATION_KEYS: Final[tuple[Key, ...]] = (
    Key(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        "11",
        "Samples kept for the quota on moves between log directories.",
        low=1,
        effect=False,
    ),
    Key(
        "alter.log.dirs.replication.quota.window.size.seconds",
        INT,
        "1",
        "Length of one sample for the quota on moves between log directories.",
        low=1,
        effect=False,
    ),
    Key(
        "cordoned.log.dirs",
        LIST,
        "",
        "Log directories that get no new partitions.",
        dynamic=PER_BROKER,
        effect=False,
        resource=True,
    ),
    Key(
        "delete.records.purgatory.purge.interval.requests",
        INT,
        "1",
        "Finished DeleteRecords requests kept before the waiting list is swept.",
        effect=False,
    ),
    Key(
        "fetch.purgatory.purge.interval.requests",
        INT,
        "1000",
        "Finished fetches kept before the waiting list is swept.",
        effect=False,
    ),
    Key(
        "min.insync.replicas",
        INT,
        "1",
        "Replicas that must have a record before acks=all is answered.",
        low=1,
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "num.recovery.threads.per.data.dir",
        INT,
        "2",
        "Threads for recovery at start; Tidemark uses its `log-io` pool.",
        low=1,
        dynamic=CLUSTER_WIDE,
        effect=False,
    ),
    Key(
        "num.replica.alter.log.dirs.threads",
        INT,
        None,
        "Threads for moves between log directories.",
        effect=False,
    ),
    Key(
        "num.replica.fetchers",
        INT,
        "1",
        "Fetcher threads for each source broker.",
        low=1,
        dynamic=CLUSTER_WIDE,
        effect=False,
    ),
    Key(
        "producer.purgatory.purge.interval.requests",
        INT,
        "1000",
        "Finished produce requests kept before the waiting list is swept.",
        effect=False,
    ),
    Key(
        "replica.fetch.backoff.ms",
        INT,
        "1000",
        "Pause of a follower after a failed fetch.",
        low=0,
        effect=False,
    ),
    Key(
        "replica.fetch.max.bytes",
        INT,
        "1048576",
        "Bytes a follower asks for, per partition.",
        low=0,
        effect=False,
    ),
    Key(
        "replica.fetch.min.bytes",
        INT,
        "1",
        "Bytes that must be there before a follower's fetch is answered.",
        effect=False,
    ),
    Key(
        "replica.fetch.response.max.bytes",
        INT,
        "10485760",
        "Bytes a follower asks for in one fetch.",
        low=0,
        effect=False,
    ),
    Key(
        "replica.fetch.wait.max.ms",
        INT,
        "500",
        "How long a follower's fetch may wait for new records.",
        effect=False,
    ),
    Key(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        "5000",
        "How often high watermarks are written down.",
    ),
    Key(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        "How long a follower may lag before it leaves the in-sync set.",
        effect=False,
    ),
    Key(
        "replica.selector.class",
        STRING,
        None,
        "Java class that picks the replica a consumer reads from.",
        effect=False,
        resource=True,
    ),
    Key(
        "replica.socket.receive.buffer.bytes",
        INT,
        "65536",
        "Receive buffer of a follower's connection.",
        effect=False,
    ),
    Key(
        "replica.socket.timeout.ms",
        INT,
        "30000",
        "Socket timeout of a follower's connection.",
        effect=False,
    ),
    Key(
        "replication.quota.window.num",
        INT,
        "11",
        "Samples kept for the replication quota.",
        low=1,
        effect=False,
    ),
    Key(
        "replication.quota.window.size.seconds",
        INT,
        "1",
        "Length of one sample for the replication quota.",
        low=1,
        effect=False,
    ),
    Key(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "Whether a replica that lacks records may lead when no other is left.",
        dynamic=CLUSTER_WIDE,
        effect=False,
    ),
)
