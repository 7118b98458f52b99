"""Chooses which of the found partition directories is the replica in the metadata.

A pure decision, once per partition at the start. Missing or contradictory facts never lead to a
new, empty log: only a replica that never had a directory assigned may be created.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kafka_protocol.wire.primitives import uuid_to_text


@dataclass(frozen=True, slots=True)
class TargetReplica:
    """The metadata's facts about a replica of this broker.

    Attributes:
        directory_id: The log directory assigned to it; None if it never had one.
        was_never_served: If it never had one: no record was ever in it, with certainty.
        may_be_begun: If it never had one: it is not in a missing log directory.
        is_lost: It was served in a directory that was never recorded, and that is missing.
        barred: Reason why it is not served here in any case, for people; "": none.
        has_others: Other brokers have replicas of the partition, too.
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
        directory_id: Of its log directory.
        where: Its path, for people.
        topic_id: From its files; None without any.
        partition: From its sidecar; None without any.
        holds_records: False if it is known to have none.
    """

    directory_id: bytes
    where: str
    topic_id: bytes | None
    partition: int | None
    holds_records: bool = True

    def fits(self, wanted: TargetReplica) -> bool:
        """True if no fact in it contradicts the wanted partition."""
        return self.topic_id in (None, wanted.topic_id) and self.partition in (
            None,
            wanted.partition,
        )

    def is_certain(self, wanted: TargetReplica) -> bool:
        """True if its own files identify it as the wanted partition."""
        return self.topic_id == wanted.topic_id and self.fits(wanted)

    def description(self) -> str:
        """Path, topic id and partition, for people."""
        topic_id = "no topic id" if self.topic_id is None else uuid_to_text(self.topic_id)
        return f"{self.where} ({topic_id}{_partition_text(self.partition)})"


def _partition_text(partition: int | None) -> str:
    return "" if partition is None else f", partition {partition}"


@dataclass(frozen=True, slots=True)
class Placement:
    """The decision; exactly one of the first three fields is set.

    Attributes:
        opened: Index of the found directory to open.
        is_begun: There is none, and the replica may be created.
        offline: Why neither is possible, for people, with the remedy.
        aside: Indexes of found directories to rename away; their files are kept.
    """

    opened: int | None = None
    is_begun: bool = False
    offline: str = ""
    aside: tuple[int, ...] = ()


def place(
    wanted: TargetReplica, found: Sequence[FoundReplica], working: Collection[bytes]
) -> Placement:
    """Decide on one partition.

    Args:
        wanted: Facts of the metadata.
        found: All partition directories of that name in working log directories.
        working: Ids of the log directories that work.
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
        # A directory without a topic id may have records of an earlier topic of this name.
        if not certain:
            return Placement(is_begun=True, aside=tuple(range(len(found))))
        # Created in a directory that then failed, and again in another; killed before it was
        # recorded.
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
