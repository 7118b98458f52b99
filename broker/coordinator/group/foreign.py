"""Groups of protocols that are not served (KIP-848, KIP-932, KIP-1071), as found in loaded data.

Nothing is known of them but their keys. Their members cannot be alive, because the protocol is not
served: so such a group counts as empty. Its offsets are fetched and committed as those of any
group. A JoinGroup makes a classic group of one of consumers or streams, as Kafka does with an
empty one: tombstones for all of its keys go in front of the new group's record.
"""

from broker.coordinator.group.decision import GroupRecord
from broker.coordinator.group.lifecycle import GroupType

_TYPES: dict[int, GroupType] = {
    **dict.fromkeys((3, 4, 5, 6, 7, 8, 16), GroupType.CONSUMER),
    **dict.fromkeys((9, 10, 11, 12, 13, 14, 15), GroupType.SHARE),
    **dict.fromkeys((17, 18, 19, 20, 21, 22, 23), GroupType.STREAMS),
}
"""Types of keys, and the protocol they belong to; those above are of brokers to come."""

PROTOCOL_TYPES = {
    GroupType.CONSUMER: "consumer",
    GroupType.SHARE: "share",
    GroupType.STREAMS: "streams",
}
"""What ListGroups says of them."""

CONVERTIBLE = frozenset({GroupType.CONSUMER, GroupType.STREAMS})
"""Types of which a JoinGroup makes a classic group."""


def type_of_key(kind: int) -> GroupType | None:
    """The protocol that a type of keys belongs to, None for one that nobody knows here."""
    return _TYPES.get(kind)


class ForeignGroups:
    """Which of them there are, with their keys."""

    def __init__(self) -> None:
        self._groups: dict[str, tuple[GroupType, dict[bytes, None]]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def type_of(self, group_id: str) -> GroupType | None:
        """The group's type, None where there is no such group."""
        found = self._groups.get(group_id)
        return None if found is None else found[0]

    def items(self) -> list[tuple[str, GroupType]]:
        """Ids and types."""
        return [(group_id, found[0]) for group_id, found in self._groups.items()]

    def put(self, group_id: str, kind: GroupType, key: bytes) -> None:
        """A record of the group is there."""
        self._groups.setdefault(group_id, (kind, {}))[1][key] = None

    def remove(self, group_id: str, key: bytes) -> None:
        """A record of the group is gone; with the last one goes the group."""
        found = self._groups.get(group_id)
        if found is None:
            return
        found[1].pop(key, None)
        if not found[1]:
            del self._groups[group_id]

    def tombstones(self, group_id: str) -> list[GroupRecord]:
        """What deletes the group."""
        found = self._groups.get(group_id)
        return [] if found is None else [GroupRecord(key, None) for key in found[1]]
