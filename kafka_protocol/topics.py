"""Names of the two topics in which a cluster keeps its metadata."""

from typing import Final

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""One partition, the log of the quorum (KIP-500); no client writes it."""

REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
"""Which segments lie in the remote tier (KIP-405); an ordinary topic that only tiers write."""
