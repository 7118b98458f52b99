"""Roles that callers request, until the engine's thread begins them.

The engine's thread holds its lock while it validates records. A caller that waited for the lock
would be the tier's own thread, once for each of thousands of partitions.
"""

from collections import OrderedDict

from kafka_protocol.types import TopicIdPartition
from rlmm.store import PartitionKey, partition_key
from rlmm.topic_based.roles import Role
from runtime.executors import make_mutex

Taken = tuple[Role | None, Role | TopicIdPartition]
"""The role that ends, and the request: another role, or a release (the partition)."""


class AskedRoles:
    """Requested roles; only the newest request for a partition counts. Thread-safe.

    Attributes:
        begun: Roles that the engine has begun; only the engine removes one without a successor.
    """

    def __init__(self) -> None:
        self._mutex = make_mutex()
        self._asked = OrderedDict[PartitionKey, Role | TopicIdPartition]()
        self.begun: dict[PartitionKey, Role] = {}

    def __bool__(self) -> bool:
        return bool(self._asked)

    def ask(self, role: Role) -> Role | None:
        """Request a role; returns the earlier requested role that never begins now."""
        return self._put(role.key, role)

    def release(self, partition: TopicIdPartition) -> Role | None:
        """Request the end of a role; returns the earlier requested role that never begins now."""
        return self._put(partition_key(partition), partition)

    def _put(self, key: PartitionKey, wanted: Role | TopicIdPartition) -> Role | None:
        with self._mutex:
            before = self._asked.pop(key, None)
            self._asked[key] = wanted
            begun = self.begun.get(key)
            if begun is not None:
                begun.superseded = True
        return before if isinstance(before, Role) else None

    def take(self) -> Taken | None:
        """The oldest request, None if there is none; a requested role counts as begun now."""
        with self._mutex:
            if not self._asked:
                return None
            key, wanted = self._asked.popitem(last=False)
            former = self.begun.pop(key, None)
            if isinstance(wanted, Role):
                self.begun[key] = wanted
            return former, wanted

    def drop(self) -> list[Role]:
        """Drop all requests; returns the roles that never begin."""
        with self._mutex:
            asked, self._asked = self._asked, OrderedDict()
        return [wanted for wanted in asked.values() if isinstance(wanted, Role)]
