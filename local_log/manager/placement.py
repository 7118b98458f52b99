"""Which of the partition directories that were found is the replica that the metadata mean.

A pure decision, made once per partition at the start. What is missing or contradictory never leads
to a new, empty log: only a replica that was never assigned a directory may be begun.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kafka_protocol.wire.primitives import uuid_to_text


@dataclass(frozen=True, slots=True)
class TargetReplica:
    """What the metadata say of a replica of this broker.

    Attributes:
        directory_id: the log directory it was assigned to; None if it never was.
        was_never_served: if it was never assigned: no record was ever in it, for certain.
        may_be_begun: if it was never assigned: it is not in a log directory that is missing.
        is_lost: it was served in a directory that nobody noted, and that is missing.
        barred: why it is not served here whatever is found, for people; "": it may be.
        has_others: other brokers have replicas of the partition, too.
    """

    topic_id: bytes
    partition: int
    directory_id: bytes | None
    was_never_served: bool = True
    may_be_begun: bool = True
    is_lost: bool = False
    barred: str = ""
    has_others: bool = False


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """A partition directory with the wanted name.

    Attributes:
        directory_id: of the log directory it lies in.
        where: its path, for people.
        topic_id: as its files say; None if they say nothing.
        partition: as its sidecar says; None if it says nothing.
        holds_records: False where it is known to have none.
    """

    directory_id: bytes
    where: str
    topic_id: bytes | None
    partition: int | None
    holds_records: bool = True

    def fits(self, wanted: TargetReplica) -> bool:
        """Whether nothing in it says that it is another partition."""
        return self.topic_id in (None, wanted.topic_id) and self.partition in (
            None,
            wanted.partition,
        )

    def is_certain(self, wanted: TargetReplica) -> bool:
        """Whether it says itself that it is the wanted one."""
        return self.topic_id == wanted.topic_id and self.fits(wanted)

    def description(self) -> str:
        """Where it is and what it says it is."""
        topic_id = "no topic id" if self.topic_id is None else uuid_to_text(self.topic_id)
        return f"{self.where} ({topic_id}{_partition_text(self.partition)})"


def _partition_text(partition: int | None) -> str:
    return "" if partition is None else f", partition {partition}"


@dataclass(frozen=True, slots=True)
class Placement:
    """What to do. Exactly one of the first three is set.

    Attributes:
        opened: index of the found directory to open.
        is_begun: there is none, and the replica may be begun.
        offline: why neither is right, for people, with the remedy.
        aside: indexes of found directories to be renamed away; their files stay.
    """

    opened: int | None = None
    is_begun: bool = False
    offline: str = ""
    aside: tuple[int, ...] = ()


def place(
    wanted: TargetReplica, found: Sequence[FoundReplica], working: Collection[bytes]
) -> Placement:
    """Decide for one partition.

    Args:
        wanted: as the metadata have it.
        found: all partition directories of that name in working log directories.
        working: ids of the log directories that work.
    """
    if wanted.barred:
        return Placement(offline=wanted.barred)
    fitting = [index for index, one in enumerate(found) if one.fits(wanted)]
    if wanted.directory_id is None and not wanted.is_lost:
        return _place_unassigned(wanted, found, fitting)
    at_home = [i for i in fitting if found[i].directory_id == wanted.directory_id]
    if at_home:
        return _opened(at_home[0], found)
    if wanted.is_lost:
        if len(fitting) == 1:
            return _opened(fitting[0], found)
        return Placement(
            offline="its log directory is lost: it was forgotten, or its id was never noted. Bring "
            "it back, or give it up with `tidemark directories forget lost`; a last copy takes "
            "`--records-given-up N` (or `unknown`), too" + _others(found)
        )
    assert wanted.directory_id is not None
    shown = uuid_to_text(wanted.directory_id)
    if wanted.directory_id not in working:
        return Placement(
            offline=f"its log directory {shown} is missing or does not work (`tidemark directories "
            "list`): mount or repair it and start the broker again; if it is gone permanently, "
            "give "
            "it "
            f"up with `tidemark directories forget {shown}`" + _others(found)
        )
    if any(one.directory_id == wanted.directory_id for one in found):
        return Placement(
            offline=f"its files in log directory {shown} are those of another partition:"
            + _others(found)
        )
    certain = [index for index in fitting if found[index].is_certain(wanted)]
    if len(certain) == 1:  # moved to another disk while the broker was down
        return _opened(certain[0], found)
    return Placement(
        offline=f"it lived in log directory {shown}, and is not there: put its files back, or "
        "delete the topic" + _others(found)
    )


def _place_unassigned(
    wanted: TargetReplica, found: Sequence[FoundReplica], fitting: Sequence[int]
) -> Placement:
    certain = [index for index in fitting if found[index].is_certain(wanted)]
    if len(certain) == 1:
        return _opened(certain[0], found)
    if wanted.was_never_served and wanted.may_be_begun:
        # What does not say whose it is may hold the records of a topic that had this name before.
        if not certain:
            return Placement(is_begun=True, aside=tuple(range(len(found))))
        # Begun in a directory that failed then, and so in another one; killed before it was noted.
        filled = [index for index in certain if found[index].holds_records]
        if len(filled) <= 1:
            return _opened((filled or certain)[0], found)
    if len(fitting) == 1:
        return _opened(fitting[0], found)
    if fitting:
        return Placement(
            offline="it is in several log directories, and nothing says which is right: leave one"
            + _others(found)
        )
    if not wanted.may_be_begun:
        return Placement(
            offline="it may lie in a log directory that is missing: bring it back, or give it up "
            "with `tidemark directories forget lost`" + _others(found)
        )
    if found:
        return Placement(
            offline="its files are those of another topic: delete the topic, or put its files back"
            + _others(found)
        )
    return Placement(is_begun=True)


def _opened(index: int, found: Sequence[FoundReplica]) -> Placement:
    return Placement(opened=index, aside=tuple(i for i in range(len(found)) if i != index))


def _others(found: Sequence[FoundReplica]) -> str:
    if not found:
        return ""
    return "; found: " + ", ".join(one.description() for one in found)
