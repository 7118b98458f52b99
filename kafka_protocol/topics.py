"""Names of the topics in which a cluster keeps what it knows, and of a group that is none."""

from typing import Final

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""One partition, the log of the quorum (KIP-500); no client writes it."""

REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
"""Which segments lie in the remote tier (KIP-405); an ordinary topic that only tiers write."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Consumer groups and the offsets that they committed; only brokers write it."""

NO_GROUP: Final = "tidemark-no-group"
"""Stands for no group at all in clients on librdkafka: its consumer must name one, and asks for the
coordinator of it, also where partitions are assigned and nothing is committed."""
