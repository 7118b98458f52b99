"""Groups of protocols that are not served (KIP-848, KIP-932, KIP-1071), found in loaded data.

Only their keys are kept. The protocol is not served, so their members cannot be alive, and such a
group counts as empty. Its offsets are fetched and committed like those of any group. A JoinGroup
converts a group of consumers or streams to a classic group, as Kafka does with an empty group.
Tombstones for all of its keys precede the new group's record.
"""

from broker.coordinator.group.decision import GroupRecord
from broker.coordinator.group.lifecycle import GroupType

_TYPES: dict[int, GroupType] = {
    **dict.fromkeys((3, 4, 5, 6, 7, 8, 16), GroupType.CONSUMER),
    **dict.fromkeys((9, 10, 11, 12, 13, 14, 15), GroupType.SHARE),
    **dict.fromkeys((17, 18, 19, 20, 21, 22, 23), GroupType.STREAMS),
}
"""The protocol of each type of key; the types above are of later versions."""

PROTOCOL_TYPES = {
    GroupType.CONSUMER: "consumer",
    GroupType.SHARE: "share",
    GroupType.STREAMS: "streams",
}
"""Protocol types of these groups in ListGroups."""

CONVERTIBLE = frozenset({GroupType.CONSUMER, GroupType.STREAMS})
"""Group types that a JoinGroup converts to a classic group."""


def type_of_key(kind: int) -> GroupType | None:
    """The protocol of a type of key; None for an unknown type."""
    return _TYPES.get(kind)


class ForeignGroups:
    """The groups of these protocols, with their keys."""

    def __init__(self) -> None:
        self._groups: dict[str, tuple[GroupType, dict[bytes, None]]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def type_of(self, group_id: str) -> GroupType | None:
        """The group's type; None: there is no such group."""
        found = self._groups.get(group_id)
        return None if found is None else found[0]

    def items(self) -> list[tuple[str, GroupType]]:
        """Ids and types of all groups."""
        return [(group_id, found[0]) for group_id, found in self._groups.items()]

    def put(self, group_id: str, kind: GroupType, key: bytes) -> None:
        """Add a key of a group."""
        self._groups.setdefault(group_id, (kind, {}))[1][key] = None

    def remove(self, group_id: str, key: bytes) -> None:
        """Remove a key of a group; the group is removed with its last key."""
        found = self._groups.get(group_id)
        if found is None:
            return
        found[1].pop(key, None)
        if not found[1]:
            del self._groups[group_id]

    def tombstones(self, group_id: str) -> list[GroupRecord]:
        """Records that delete the group."""
        found = self._groups.get(group_id)
        return [] if found is None else [GroupRecord(key, None) for key in found[1]]
