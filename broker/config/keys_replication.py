"""Replication between brokers, and the waiting lists of requests.

Names, types, defaults and ranges are those of Apache Kafka 4.3.
"""

from typing import Final

from broker.config.key import INT, LONG, Dynamic, Key

CLUSTER_WIDE = Dynamic.CLUSTER_WIDE

REPLICATION_KEYS: Final[tuple[Key, ...]] = (
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
        "Threads that open the logs of each log directory at start, and recover them after a kill.",
        low=1,
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        "5000",
        "How often high watermarks are written down.",
    ),
)
