"""The file `quorum-state`: the highest epoch seen and this replica's vote in it.

One line of JSON. Version 0 belongs to kraft.version 0 and repeats the configured voters; version 1
has the directory id of the candidate voted for. It is written as a whole (temp, fsync, rename)
before any answer that depends on it.

Kafka's file has no checksum, so one flipped bit can turn epoch 7 into 3, or name another candidate.
Ours ends with one more field, the CRC-32C of the file without that field. Kafka ignores it, and
writes the file without it; such a file is not checked.

Source: files of Apache Kafka 4.3.1; KIP-595, KIP-853 for version 1.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from crc32c import crc32c

from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.primitives import uuid_from_text, uuid_to_text
from metadata_topic.quorum.errors import UnusableMetadataError
from metadata_topic.raft.effects import Persist
from metadata_topic.raft.events import ElectionState
from metadata_topic.raft.voters import ReplicaKey, VoterSet
from runtime.disk import Disk
from runtime.work import WorkQueue

QUORUM_STATE: Final = "quorum-state"
_NONE: Final = -1
_CHECKSUM: Final = re.compile(rb'(.*),"tidemarkCrc32c":"([0-9a-f]{8})"}', re.DOTALL)
_COMMON: Final = frozenset({"leaderId", "leaderEpoch", "votedId", "data_version"})
_FIELDS: Final = (
    _COMMON | {"clusterId", "appliedOffset", "currentVoters"},
    _COMMON | {"votedDirectoryId"},
)


class QuorumStateError(UnusableMetadataError):
    """The file is unreadable. Fatal: a forgotten vote could be given twice."""


def dump_quorum_state(election: ElectionState, *, kraft_version: int, voters: VoterSet) -> bytes:
    """Encode the file's content in the version that belongs to `kraft_version`."""
    leader_id = _NONE if election.leader_id is None else election.leader_id
    voted_id = _NONE if election.voted is None else election.voted.id
    fields: dict[str, object]
    if kraft_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": leader_id,
            "leaderEpoch": election.epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voters.ids],
            "data_version": 0,
        }
    else:
        directory_id = ZERO_UUID if election.voted is None else election.voted.directory_id
        fields = {
            "leaderId": leader_id,
            "leaderEpoch": election.epoch,
            "votedId": voted_id,
            "votedDirectoryId": uuid_to_text(directory_id),
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":")).encode()


def with_checksum(data: bytes) -> bytes:
    """Add our checksum as the last field of the file."""
    assert data.endswith(b"}")
    return data[:-1] + f',"tidemarkCrc32c":"{crc32c(data):08x}"}}'.encode()


def _without_checksum(data: bytes) -> bytes:
    found = _CHECKSUM.fullmatch(data)
    if found is None:
        return data
    content = found[1] + b"}"
    if int(found[2], 16) != crc32c(content):
        raise QuorumStateError(f"{QUORUM_STATE}: the checksum does not fit the content")
    return content


def parse_quorum_state(data: bytes) -> ElectionState:
    """Decode the file's content, of either version, with or without our checksum.

    Raises:
        QuorumStateError: Unknown version, or wrong fields or checksum.
    """
    try:
        fields = json.loads(_without_checksum(data))
        version = fields["data_version"]
        if version not in (0, 1):
            raise QuorumStateError(f"{QUORUM_STATE}: data_version {version} is not known")
        if set(fields) != _FIELDS[version]:
            # A changed letter in the checksum's name must not switch it off.
            raise QuorumStateError(f"{QUORUM_STATE}: not the fields of data_version {version}")
        voted_id = int(fields["votedId"])
        directory_id = uuid_from_text(fields["votedDirectoryId"]) if version == 1 else ZERO_UUID
        leader_id = int(fields["leaderId"])
        epoch = int(fields["leaderEpoch"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise QuorumStateError(f"{QUORUM_STATE}: cannot be read: {error!r}") from error
    return ElectionState(
        epoch=max(epoch, 0),
        leader_id=None if leader_id == _NONE else leader_id,
        voted=None if voted_id == _NONE else ReplicaKey(voted_id, directory_id),
    )


class QuorumStateFile:
    """The file in one metadata directory."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._path = directory / QUORUM_STATE
        self._disk = disk

    def read(self) -> ElectionState:
        """Return the last persisted state; the initial one if there is no file.

        Raises:
            QuorumStateError: The file cannot be read.
        """
        return self.find() or ElectionState()

    def find(self) -> ElectionState | None:
        """Return the last persisted state; None if there is no file.

        Raises:
            QuorumStateError: The file cannot be read.
        """
        try:
            data = self._disk.read_file(self._path)
        except FileNotFoundError:
            return None
        try:
            return parse_quorum_state(data)
        except QuorumStateError as error:
            raise QuorumStateError(
                f"{self._path}: {error}. Restore the file from a copy. Where this node is the "
                "only voter the file can be moved away instead: the next epoch is above every "
                "epoch in the log and its snapshots. A voter among others could then vote twice "
                "in one epoch: it starts again after `tidemark directories abstain`"
            ) from error

    def write(self, election: ElectionState, *, kraft_version: int, voters: VoterSet) -> None:
        """Persist the state; returns after fsync of file and directory."""
        data = dump_quorum_state(election, kraft_version=kraft_version, voters=voters)
        self._disk.atomic_write(self._path, with_checksum(data))


class QuorumStateWriter:
    """Writes states one after the other; used from the loop's thread only.

    A write of `quorum-state` takes an fsync. Of the states that arrive meanwhile only the newest is
    written. It includes the others, because the core never takes back a vote or an epoch.
    """

    def __init__(
        self, file: QuorumStateFile, queue: WorkQueue, persisted: Callable[[int], None]
    ) -> None:
        """Begin with no state to write.

        Args:
            file: `quorum-state`.
            queue: Has no other work.
            persisted: Called on the loop with the number of an effect; all effects of lower numbers
                are durable, too.
        """
        self._file, self._queue, self._persisted = file, queue, persisted
        self._next: Persist | None = None

    def write(self, effect: Persist) -> None:
        """Make a state durable; `persisted` is called for it, or for a newer one."""
        self._next = effect
        if self._queue.is_idle:
            self._write_next()

    def _write_next(self) -> None:
        effect, self._next = self._next, None
        if effect is None:
            return
        write = partial(
            self._file.write,
            effect.election,
            kraft_version=effect.kraft_version,
            voters=effect.voters,
        )
        self._queue.add(write, lambda _: self._written(effect.number))

    def _written(self, number: int) -> None:
        self._write_next()
        self._persisted(number)
