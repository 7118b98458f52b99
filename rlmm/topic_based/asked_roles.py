"""Roles that callers ask for, until the engine's thread takes them.

That thread holds its lock while it validates what it reads. A caller that waited for it would be
the tier's own thread, once for each of thousands of partitions.
"""

from collections import OrderedDict

from kafka_protocol.types import TopicIdPartition
from rlmm.store import PartitionKey, partition_key
from rlmm.topic_based.roles import Role
from runtime.executors import make_mutex

Taken = tuple[Role | None, Role | TopicIdPartition]
"""The role that ends, and what was asked for: another role, or to be let go."""


class AskedRoles:
    """Of what is asked for a partition only the newest counts; thread-safe.

    Attributes:
        begun: roles that the engine has taken; it alone removes one without another.
    """

    def __init__(self) -> None:
        self._mutex = make_mutex()
        self._asked = OrderedDict[PartitionKey, Role | TopicIdPartition]()
        self.begun: dict[PartitionKey, Role] = {}

    def __bool__(self) -> bool:
        return bool(self._asked)

    def ask(self, role: Role) -> Role | None:
        """Ask for a role; returns the one that was asked for before and never begins."""
        return self._put(role.key, role)

    def release(self, partition: TopicIdPartition) -> Role | None:
        """Ask for the end of a role; returns as `ask`."""
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
        """What was asked for longest, None without any; if it is a role, it has begun now."""
        with self._mutex:
            if not self._asked:
                return None
            key, wanted = self._asked.popitem(last=False)
            former = self.begun.pop(key, None)
            if isinstance(wanted, Role):
                self.begun[key] = wanted
            return former, wanted

    def drop(self) -> list[Role]:
        """Ask for nothing more; returns the roles that never begin."""
        with self._mutex:
            asked, self._asked = self._asked, OrderedDict()
        return [wanted for wanted in asked.values() if isinstance(wanted, Role)]
