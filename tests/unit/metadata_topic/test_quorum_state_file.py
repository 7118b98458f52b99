from pathlib import Path

import pytest

from metadata_topic.quorum.driver.quorum_state_file import (
    QuorumStateError,
    QuorumStateFile,
    dump_quorum_state,
    parse_quorum_state,
)
from metadata_topic.raft.events import ElectionState
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet
from runtime.disk import Disk

METADATA = Path(__file__).parents[2] / "golden/cluster-metadata"
VOTERS = VoterSet(tuple(Voter(ReplicaKey(n)) for n in (1, 2, 3)))
DIRECTORY = bytes.fromhex("11111111111111112222222222222222")

# Lines that Kafka's own classes wrote: a leader, a leader with a vote, a vote alone.
VECTORS = [
    (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}',
        0,
        ElectionState(5, 1, None),
    ),
    (
        b'{"leaderId":1,"leaderEpoch":5,"votedId":2,'
        b'"votedDirectoryId":"EREREREREREiIiIiIiIiIg","data_version":1}',
        1,
        ElectionState(5, 1, ReplicaKey(2, DIRECTORY)),
    ),
    (
        b'{"leaderId":-1,"leaderEpoch":6,"votedId":2,'
        b'"votedDirectoryId":"EREREREREREiIiIiIiIiIg","data_version":1}',
        1,
        ElectionState(6, None, ReplicaKey(2, DIRECTORY)),
    ),
]


@pytest.mark.parametrize(("data", "version", "election"), VECTORS)
def test_vectors_are_read_and_written(data: bytes, version: int, election: ElectionState) -> None:
    assert parse_quorum_state(data) == election
    assert dump_quorum_state(election, kraft_version=version, voters=VOTERS) == data


@pytest.mark.parametrize(
    "path", sorted(METADATA.rglob("quorum-state")), ids=lambda p: p.parent.parent.name
)
def test_files_of_kafka_are_written_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    version = 0 if b'"data_version":0' in data else 1
    voters = VoterSet((Voter(ReplicaKey(1)),))
    again = dump_quorum_state(parse_quorum_state(data), kraft_version=version, voters=voters)
    assert again == data


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'{"data_version":2}', b'{"data_version":1}', b"\xff"]
)
def test_nonsense_is_an_error_not_an_empty_vote(data: bytes) -> None:
    with pytest.raises(QuorumStateError):
        parse_quorum_state(data)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = QuorumStateFile(tmp_path, Disk())
    assert file.read() == ElectionState()
    election = ElectionState(9, 1, None)
    file.write(election, kraft_version=1, voters=VOTERS)
    assert file.read() == election


VOTED = [
    (0, ElectionState(7, 1, ReplicaKey(1))),
    (1, ElectionState(7, None, ReplicaKey(2, DIRECTORY))),
    (1, ElectionState(7, 3, None)),
]


@pytest.mark.parametrize(("version", "election"), VOTED)
def test_no_flipped_bit_of_our_own_file_gives_another_vote(
    tmp_path: Path, version: int, election: ElectionState
) -> None:
    file = QuorumStateFile(tmp_path, Disk())
    file.write(election, kraft_version=version, voters=VOTERS)
    sound = (tmp_path / "quorum-state").read_bytes()
    expected = file.read()
    for position in range(len(sound)):
        for bit in range(8):
            bad = bytearray(sound)
            bad[position] ^= 1 << bit
            (tmp_path / "quorum-state").write_bytes(bad)
            with pytest.raises(QuorumStateError, match=r"quorum-state.*moved away"):
                file.read()
    (tmp_path / "quorum-state").write_bytes(sound)
    assert file.read() == expected


def test_our_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    file = QuorumStateFile(tmp_path, Disk())
    file.write(ElectionState(7, 3, None), kraft_version=1, voters=VOTERS)
    sound = (tmp_path / "quorum-state").read_bytes()
    for size in range(len(sound)):
        (tmp_path / "quorum-state").write_bytes(sound[:size])
        with pytest.raises(QuorumStateError):
            file.read()


def test_kafka_may_write_the_file_again_without_a_checksum(tmp_path: Path) -> None:
    (tmp_path / "quorum-state").write_bytes(VECTORS[1][0])
    assert QuorumStateFile(tmp_path, Disk()).read() == VECTORS[1][2]
