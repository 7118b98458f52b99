"""The API keys, and the header version of each API version.

Header versions are a pure function of key and version: flexible versions (KIP-482) have request
header 2 and response header 1, others 1 and 0. ApiVersions always answers with header 0, so that
a client which guessed too high can read the answer.
"""

from enum import IntEnum
from importlib import import_module
from typing import Any, Final

from kafka_protocol.wire.schema import first_flexible


class ApiKey(IntEnum):
    """The APIs whose schemas we have; share and streams groups are excluded."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    RAISE_LEADER_EPOCHS = 32001
    UPDATE_REMOVED_TOPICS = 32002


PRIVATE: Final = frozenset({ApiKey.RAISE_LEADER_EPOCHS, ApiKey.UPDATE_REMOVED_TOPICS})
"""APIs of ours only: brokers send them to the active controller; clients do not see them."""


_NEVER = 1 << 15
_KEYS = frozenset(ApiKey)
_first_flexible: dict[int, int] = {}


def schemas_of(name: str) -> Any:
    """The module with the schemas of an API (the name of its key) or of a family of records."""
    return import_module(f"kafka_protocol.wire.messages.{name.lower()}")


def _flexible_from(api_key: int) -> int:
    """Return the first flexible version; an unknown API has none, and is not cached."""
    if (first := _first_flexible.get(api_key)) is None:
        if api_key not in _KEYS:
            return _NEVER
        said = first_flexible(schemas_of(ApiKey(api_key).name).REQUEST)
        first = _first_flexible[api_key] = _NEVER if said is None else said
    return first


def request_header_version(api_key: int, api_version: int) -> int:
    """1, or 2 with a tagged section; 1 for unknown keys."""
    return 2 if api_version >= _flexible_from(api_key) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """0, or 1 with a tagged section."""
    if api_version < _flexible_from(api_key) or api_key == ApiKey.API_VERSIONS:
        return 0
    return 1


def header_versions(api_key: int, api_version: int) -> tuple[int, int]:
    """Versions of the request header and of the response header."""
    return (
        request_header_version(api_key, api_version),
        response_header_version(api_key, api_version),
    )
