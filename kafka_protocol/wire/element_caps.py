"""How many elements the arrays of one message may have together.

Honest counts of nested arrays in a frame of 100 MiB make hundreds of millions of objects. Each API
has the cap that its largest sensible request needs, so that a hostile one costs no more memory than
that. What a cap refuses is no message, and ends its connection.

DIFFERS: Kafka has no such caps.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafka_protocol.wire.api_keys import ApiKey


class Cap(NamedTuple):
    """A cap and its reason.

    Attributes:
        elements: of all arrays of a request together, nested ones too (inclusive).
        reason: what an honest client asks for at most.
    """

    elements: int
    reason: str


_PARTITIONS = Cap(250_000, "100,000 partitions, each of a topic of its own, and some beside")
_SETTINGS = Cap(250_000, "all settings of some thousand topics")
_MADE = Cap(150_000, "10,000 partitions at 8 chosen brokers each; no more are made at once")
_GROUPS = Cap(100_000, "names of all groups or transactions of a cluster")
_MEMBERS = Cap(20_000, "members of one group: each has all the others wait")
_RULES = Cap(10_000, "rules, quotas or users that a tool sets at once")
_FEW = Cap(1_000, "what one client or node has itself: assignors, filters, listeners, directories")
_QUORUM = Cap(1_000, "the one partition of the metadata log, and a quorum's voters")

CAPS: Final[Mapping[ApiKey, Cap]] = {
    ApiKey.PRODUCE: _PARTITIONS,
    ApiKey.FETCH: _PARTITIONS,
    ApiKey.LIST_OFFSETS: _PARTITIONS,
    ApiKey.METADATA: _PARTITIONS,
    ApiKey.OFFSET_COMMIT: _PARTITIONS,
    ApiKey.OFFSET_FETCH: _PARTITIONS,
    ApiKey.FIND_COORDINATOR: _GROUPS,
    ApiKey.JOIN_GROUP: _FEW,
    ApiKey.LEAVE_GROUP: _MEMBERS,
    ApiKey.SYNC_GROUP: _MEMBERS,
    ApiKey.DESCRIBE_GROUPS: _GROUPS,
    ApiKey.LIST_GROUPS: _FEW,
    ApiKey.CREATE_TOPICS: _MADE,
    ApiKey.DELETE_TOPICS: _PARTITIONS,
    ApiKey.DELETE_RECORDS: _PARTITIONS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _PARTITIONS,
    ApiKey.ADD_PARTITIONS_TO_TXN: _PARTITIONS,
    ApiKey.WRITE_TXN_MARKERS: _PARTITIONS,
    ApiKey.TXN_OFFSET_COMMIT: _PARTITIONS,
    ApiKey.CREATE_ACLS: _RULES,
    ApiKey.DELETE_ACLS: _RULES,
    ApiKey.DESCRIBE_CONFIGS: _SETTINGS,
    ApiKey.ALTER_CONFIGS: _SETTINGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _PARTITIONS,
    ApiKey.DESCRIBE_LOG_DIRS: _PARTITIONS,
    ApiKey.CREATE_PARTITIONS: _MADE,
    ApiKey.CREATE_DELEGATION_TOKEN: _FEW,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _RULES,
    ApiKey.DELETE_GROUPS: _GROUPS,
    ApiKey.ELECT_LEADERS: _PARTITIONS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _SETTINGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _PARTITIONS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _PARTITIONS,
    ApiKey.OFFSET_DELETE: _PARTITIONS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _RULES,
    ApiKey.ALTER_CLIENT_QUOTAS: _RULES,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _RULES,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _RULES,
    ApiKey.VOTE: _QUORUM,
    ApiKey.BEGIN_QUORUM_EPOCH: _QUORUM,
    ApiKey.END_QUORUM_EPOCH: _QUORUM,
    ApiKey.DESCRIBE_QUORUM: _QUORUM,
    ApiKey.ALTER_PARTITION: _PARTITIONS,
    ApiKey.UPDATE_FEATURES: _FEW,
    ApiKey.FETCH_SNAPSHOT: _QUORUM,
    ApiKey.DESCRIBE_PRODUCERS: _PARTITIONS,
    ApiKey.BROKER_REGISTRATION: _PARTITIONS,
    ApiKey.BROKER_HEARTBEAT: _FEW,
    ApiKey.DESCRIBE_TRANSACTIONS: _GROUPS,
    ApiKey.LIST_TRANSACTIONS: _GROUPS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _PARTITIONS,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _GROUPS,
    ApiKey.CONTROLLER_REGISTRATION: _FEW,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _PARTITIONS,
    ApiKey.RAISE_LEADER_EPOCHS: _PARTITIONS,
    ApiKey.UPDATE_REMOVED_TOPICS: _PARTITIONS,
    ApiKey.LIST_CONFIG_RESOURCES: _FEW,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _PARTITIONS,
    ApiKey.ADD_RAFT_VOTER: _QUORUM,
    ApiKey.UPDATE_RAFT_VOTER: _QUORUM,
}
"""Of requests; an API whose requests have no arrays has none."""

ELEMENTS_MAX: Final = 250_000
"""Of what nodes of the own cluster send (answers) or wrote (records), and of all unknown tagged
fields of a message, which are skipped."""


def elements_max(name: str, api_key: int | None) -> int:
    """The cap of the message of this name."""
    if api_key is not None and name.endswith("Request") and api_key in CAPS:
        return CAPS[ApiKey(api_key)].elements
    return ELEMENTS_MAX
