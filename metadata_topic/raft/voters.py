"""Voters of the metadata quorum, and their majority."""

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.primitives import uuid_to_text


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    """A replica of the metadata log: node id and directory id (KIP-853).

    Attributes:
        directory_id: 16 bytes; zero if unknown (kraft.version 0).
    """

    id: int
    directory_id: bytes = ZERO_UUID

    @property
    def text(self) -> str:
        """Text for messages."""
        return f"{self.id} (directory id {uuid_to_text(self.directory_id)})"


@dataclass(frozen=True, slots=True)
class VoterEndpoint:
    """A listener of a voter for the other voters."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of a voter set.

    Attributes:
        kraft_versions: Lowest and highest supported kraft.version, both inclusive.
    """

    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_versions: tuple[int, int] = (0, 1)

    def can_do(self, kraft_version: int) -> bool:
        """True if it supports a kraft.version."""
        lowest, highest = self.kraft_versions
        return lowest <= kraft_version <= highest

    def equals_reported(self, other: "Voter") -> bool:
        """True if `other` is this voter with the same listeners, in any order."""
        return (
            self.key == other.key
            and self.kraft_versions == other.kraft_versions
            and set(self.endpoints) == set(other.endpoints)
        )


@dataclass(frozen=True, slots=True)
class VoterSet:
    """All voters, by rising id."""

    voters: tuple[Voter, ...]

    def __post_init__(self) -> None:
        ids = [voter.key.id for voter in self.voters]
        assert ids == sorted(set(ids)), f"voter ids must rise and be distinct: {ids}"

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of all voters."""
        return tuple(voter.key.id for voter in self.voters)

    def get(self, voter_id: int) -> Voter | None:
        """Return the voter of an id, None if there is none."""
        return next((voter for voter in self.voters if voter.key.id == voter_id), None)

    def has(self, key: ReplicaKey) -> bool:
        """True if `key` is a voter, by id, and by directory if the set has its directory."""
        voter = self.get(key.id)
        return voter is not None and voter.key.directory_id in (ZERO_UUID, key.directory_id)

    def is_sole(self, key: ReplicaKey) -> bool:
        """True if `key` is the only voter, so that its own vote is a majority."""
        return self.ids == (key.id,) and self.has(key)

    def with_voter(self, voter: Voter) -> "VoterSet":
        """Return the set with `voter` added, or in place of the one of its id."""
        others = [one for one in self.voters if one.key.id != voter.key.id]
        return VoterSet(tuple(sorted([*others, voter], key=lambda one: one.key.id)))

    def without(self, voter_id: int) -> "VoterSet":
        """Return the set without the voter of an id."""
        return VoterSet(tuple(one for one in self.voters if one.key.id != voter_id))

    @property
    def majority(self) -> int:
        """Number of votes, or flushed copies, that decide."""
        return len(self.voters) // 2 + 1


def majority_offset(end_offsets: Sequence[int], majority: int) -> int:
    """Return the offset up to which a majority of voters has flushed the log.

    Args:
        end_offsets: For every voter the first offset it has not flushed (exclusive); -1 unknown.
        majority: Number of voters required.

    Returns:
        The highest offset (exclusive) that at least `majority` of them reach; -1 if none.
    """
    ordered = sorted(end_offsets, reverse=True)
    return ordered[majority - 1] if len(ordered) >= majority else -1
