"""Output of `tidemark groups describe`: how far a group has read, and who reads. Pure.

Columns have the names that Kafka's consumer-groups tool gives them; GROUP stands above, once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_protocol.types import TopicPartition
from tidemark.cluster.groups import Described, Listed, Member
from tidemark.cluster.table import fields, table

_OFFSETS: Final = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CLIENT-ID")
_MEMBERS: Final = ("CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")


@dataclass(frozen=True, slots=True)
class Row:
    """How far a group has read a partition.

    Attributes:
        current: the next offset to read, as committed; None: nothing was.
        end: of the log (exclusive); None: the partition has no leader, or there is no such topic.
        member: the one that reads it; None: none does.
    """

    partition: TopicPartition
    current: int | None
    end: int | None
    member: Member | None

    @property
    def lag(self) -> int | None:
        """Offsets between them; None where one is not known. Below 0: the log lost its end."""
        if self.current is None or self.end is None:
            return None
        return self.end - self.current


def rows_of(
    group: Described,
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[Row]:
    """A row for each partition that is committed or assigned, by name."""
    readers = {partition: member for member in group.members for partition in member.assigned or ()}
    return [
        Row(one, committed.get(one), ends.get(one), readers.get(one))
        for one in sorted(committed.keys() | readers.keys())
    ]


def group_text(group: Described, rows: Iterable[Row], width: int | None) -> str:
    """State, offsets, members."""
    head = fields(
        [
            ("GROUP", group.group),
            ("STATE", group.state),
            ("COORDINATOR (ID)", group.coordinator),
            ("ASSIGNMENT-STRATEGY", group.strategy or None),
            ("#MEMBERS", len(group.members)),
        ],
        width,
    )
    cells = [
        (
            *(*one.partition, one.current, one.end, one.lag),
            one.member and one.member.client_id,
        )
        for one in rows
    ]
    text = head + (table(_OFFSETS, cells, width) if cells else "nothing is committed\n")
    if not group.members:
        return text
    people = [
        (
            *(one.id, one.host, one.client_id),
            *(None if one.assigned is None else len(one.assigned), _assignment(one)),
        )
        for one in group.members
    ]
    return f"{text}\n{table(_MEMBERS, people, width)}"


def group_json(group: Described, rows: Iterable[Row]) -> dict[str, object]:
    """The same for programs."""
    return {
        "group": group.group,
        "state": group.state,
        "coordinator": group.coordinator._asdict(),
        "assignment_strategy": group.strategy,
        "offsets": [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "current_offset": one.current,
                "log_end_offset": one.end,
                "lag": one.lag,
                "consumer_id": one.member and one.member.id,
            }
            for one in rows
        ],
        "members": [
            {
                "consumer_id": one.id,
                "group_instance_id": one.instance_id,
                "client_id": one.client_id,
                "host": one.host,
                "assignment": None
                if one.assigned is None
                else [
                    {"topic": topic, "partition": number} for topic, number in sorted(one.assigned)
                ],
            }
            for one in group.members
        ],
    }


def groups_text(listed: Iterable[Listed], width: int | None) -> str:
    """A line for each group."""
    rows = [(one.group, one.type, one.protocol or None, one.state) for one in listed]
    return table(("GROUP", "TYPE", "PROTOCOL", "STATE"), rows, width)


def _assignment(member: Member) -> str | None:
    """The assignment in the form of Kafka's tool: `orders:0,1;tides:0`."""
    if not member.assigned:
        return None
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(member.assigned):
        topics.setdefault(topic, []).append(number)
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items())
