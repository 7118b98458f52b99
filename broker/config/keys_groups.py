"""Keys of consumer groups and their committed offsets.

Names, types, defaults and ranges are those of Apache Kafka 4.3. Clients can change none of them, as
in Kafka.
"""

from typing import Final

from broker.config.key import INT, LONG, SHORT, Key

GROUP_KEYS: Final[tuple[Key, ...]] = (
    Key(
        "group.initial.rebalance.delay.ms",
        INT,
        "3000",
        "How long a new classic group waits for more members.",
    ),
    Key(
        "group.max.session.timeout.ms",
        INT,
        "1800000",
        "Largest session timeout a classic member may ask for.",
    ),
    Key("group.max.size", INT, "2147483647", "Most members of one classic group.", low=1),
    Key(
        "group.min.session.timeout.ms",
        INT,
        "6000",
        "Smallest session timeout a classic member may ask for.",
    ),
    Key(
        "offset.metadata.max.bytes",
        INT,
        "4096",
        "Largest note a client may store with a committed offset.",
    ),
    Key(
        "offsets.commit.timeout.ms",
        INT,
        "5000",
        "How long an offset commit, and any change of a group, waits until it is committed.",
        low=1,
    ),
    Key(
        "offsets.load.buffer.size",
        INT,
        "5242880",
        "Bytes read at once while committed offsets are loaded.",
        low=1,
    ),
    Key(
        "offsets.retention.check.interval.ms",
        LONG,
        "600000",
        "How often old committed offsets are looked for.",
        low=1,
    ),
    Key(
        "offsets.retention.minutes",
        INT,
        "10080",
        "Age at which committed offsets of empty groups go.",
        low=1,
    ),
    Key(
        "offsets.topic.compression.codec",
        INT,
        "0",
        "Codec of what the broker writes to `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, 3 lz4, "
        "4 zstd.",
    ),
    Key(
        "offsets.topic.num.partitions",
        INT,
        "50",
        "Partitions of `__consumer_offsets`; without effect once it exists.",
        low=1,
    ),
    Key(
        "offsets.topic.replication.factor",
        SHORT,
        "3",
        "Replicas of `__consumer_offsets`; without effect once it exists.",
        low=1,
    ),
    Key(
        "offsets.topic.segment.bytes",
        INT,
        "104857600",
        "Segment size of `__consumer_offsets`; without effect once it exists.",
        low=1,
    ),
)
