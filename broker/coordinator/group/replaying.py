"""From the records of a partition of `__consumer_offsets` to its groups and offsets.

The same code loads a partition and applies the records that are written later. Of the later ones
only offsets and tombstones have an effect, because a decision changes its group before its records
are written.
"""

from collections import Counter
from collections.abc import Iterable

from broker.coordinator.group.classic_group import ClassicGroup, KeptBytes
from broker.coordinator.group.decision import Caller, DamagedRecord, GroupRecord
from broker.coordinator.group.foreign import ForeignGroups, type_of_key
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.member import Member, Timeouts
from broker.coordinator.group.offsets import OffsetStore
from broker.coordinator.group.records import (
    GROUP_KEY_TYPE,
    OFFSET_KEY_TYPES,
    is_plain_offset_value,
    key_group,
    key_type,
    read_group_value,
    read_offset_value,
)
from kafka_protocol.errors import MalformedMessageError

LoggedRecord = tuple[int, bytes | None, bytes | None]
"""Offset, key and value of a record in the log."""

_NO_PRODUCER = -1
_NO_TIMESTAMP = -1
_NO_TIMEOUT = -1


class Replay:
    """Groups and offsets made from records.

    Attributes:
        groups: Classic groups by id; changed by `keep` and `forget` only.
        offsets: Committed offsets and those of open transactions.
        foreign: Groups of protocols that are not served.
        unknown: Number of records of unknown types, by type.
        is_live: Loading is over: records of groups follow from decisions and are not replayed.
    """

    def __init__(self) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self._groups_kept = KeptBytes()
        self.offsets = OffsetStore()
        self.foreign = ForeignGroups()
        self.unknown: Counter[int] = Counter()
        self.is_live = False

    @property
    def kept_bytes(self) -> int:
        """Approximate memory of groups and offsets."""
        return self._groups_kept.bytes + self.offsets.kept_bytes

    def keep(self, group: ClassicGroup) -> None:
        """Add a group; it replaces one with its id."""
        self.forget(group.group_id)
        self.groups[group.group_id] = group
        group.count_in(self._groups_kept)

    def forget(self, group_id: str) -> bool:
        """Remove a group.

        Returns:
            True if it existed.
        """
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.count_out()
        return group is not None

    def record(
        self, key: bytes | None, value: bytes | None, *, offset: int, producer_id: int
    ) -> None:
        """Replay one record.

        Raises:
            DamagedRecord: It cannot be decoded; nothing has changed.
        """
        try:
            self._record(key or b"", value, offset, producer_id)
        except (MalformedMessageError, UnicodeDecodeError) as cause:
            raise DamagedRecord(offset=offset, key=key or b"", cause=str(cause)) from cause

    def batch(self, records: Iterable[LoggedRecord], producer_id: int) -> list[DamagedRecord]:
        """Replay the records of a batch; returns the errors of those that cannot be decoded."""
        damaged: list[DamagedRecord] = []
        quick, is_plain = producer_id == _NO_PRODUCER, is_plain_offset_value
        put_again = self.offsets.put_again
        for offset, key, value in records:
            # Fast path of most records: a plain offset of a cached group and topic.
            if quick and key and value and is_plain(value) and put_again(key, value, offset):
                continue
            try:
                self._record(key or b"", value, offset, producer_id)
            except (MalformedMessageError, UnicodeDecodeError) as cause:
                damaged.append(DamagedRecord(offset=offset, key=key or b"", cause=str(cause)))
        return damaged

    def written(self, records: Iterable[GroupRecord], first_offset: int) -> None:
        """Replay records of a decision that are appended now; all can be decoded."""
        put_again = self.offsets.put_again
        for offset, (key, value) in enumerate(records, first_offset):
            if value is None or not put_again(key, value, offset):
                self._record(key, value, offset, _NO_PRODUCER)

    def _record(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        kind = key_type(key)
        if kind in OFFSET_KEY_TYPES:
            self._offset(key, value, offset, producer_id)
        elif kind == GROUP_KEY_TYPE:
            self._group(key, value)
        else:
            self._other(kind, key, value)

    def _offset(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        group_id, position = key_group(key)
        start = position + 2
        end = start + (key[position] << 8 | key[position + 1]) if start <= len(key) else start
        if end + 4 != len(key):
            raise MalformedMessageError("the key of an offset is cut, or has bytes behind it")
        topic = key[start:end].decode()
        partition = int.from_bytes(key[end:], "big", signed=True)
        if value is None:
            self.offsets.remove(group_id, topic, partition)
            return
        if not is_plain_offset_value(value):
            read_offset_value(value)
        if group_id not in self.groups and self.foreign.type_of(group_id) is None:
            self.keep(ClassicGroup(group_id, since_ms=None))
        if producer_id == _NO_PRODUCER:
            self.offsets.put(group_id, topic, partition, value, record_offset=offset)
            self.offsets.remember_prefix(key[:-4], group_id, topic)
        else:
            place = (group_id, topic, partition)
            self.offsets.put_pending(producer_id, place, value, record_offset=offset)

    def _group(self, key: bytes, value: bytes | None) -> None:
        group_id, _ = key_group(key)
        if value is None:
            if self.forget(group_id):
                self.offsets.by_prefix.clear()  # the next offset must create the group again
        elif not self.is_live:
            self.keep(_restored(group_id, value))

    def _other(self, kind: int, key: bytes, value: bytes | None) -> None:
        group_type = type_of_key(kind)
        if group_type is None:
            self.unknown[kind] += 1
            return
        group_id, _ = key_group(key)
        if value is None:
            self.foreign.remove(group_id, key)
            self.offsets.by_prefix.clear()  # for the same reason as above
        else:
            self.foreign.put(group_id, group_type, key)


def _restored(group_id: str, value: bytes) -> ClassicGroup:
    """The group of the last written generation: stable, or empty."""
    read = read_group_value(value)
    since = read.current_state_timestamp
    group = ClassicGroup(group_id, since_ms=None if since == _NO_TIMESTAMP else since)
    protocol = read.protocol
    for each in read.members:
        session_ms, rebalance_ms = each.session_timeout, each.rebalance_timeout
        member = Member(
            each.member_id,
            each.group_instance_id,
            Caller(each.client_id, each.client_host),
            Timeouts(session_ms, session_ms if rebalance_ms == _NO_TIMEOUT else rebalance_ms),
            ((protocol or "", each.subscription),),
            each.assignment,
        )
        _add_restored(group, member, read.protocol_type)
    group.generation = read.generation
    group.protocol_type = read.protocol_type or None
    group.protocol_name = protocol
    group.leader_id = read.leader if read.leader in group.members else group.leader_id
    if group.members:
        group.status = GroupStatus.STABLE
    group.learn_subscriptions()
    return group


def _add_restored(group: ClassicGroup, member: Member, protocol_type: str) -> None:
    """Add a restored member; a duplicate makes the whole record damaged."""
    if member.member_id in group.members or member.instance_id in group.static_members:
        raise MalformedMessageError(f"member {member.member_id} is there twice")
    group.add(member, protocol_type)
