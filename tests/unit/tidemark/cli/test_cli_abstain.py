"""`tidemark directories abstain`: what it writes, and when it refuses."""

from pathlib import Path

import pytest

from kafka_protocol.records.control import control_batch, leader_change
from metadata_topic.quorum.driver.quorum_state_file import QuorumStateFile
from metadata_topic.quorum.start.quorum_start import abstain_until
from runtime.disk import Disk
from tests.support.samples.command_line import CLUSTER, tidemark, write_config

D4 = "BAQEBAQEBAQEBAQEBAQEBA"
D5 = "BQUFBQUFBQUFBQUFBQUFBQ"
SEVERAL = f"4@127.0.0.1:9093:{D4},5@127.0.0.1:9095:{D5}"
LAST_EPOCH = 6


def home(tmp_path: Path, *options: str, with_log: bool = True) -> Path:
    """A formatted node 4 whose log has one batch and which has no quorum-state."""
    config = write_config(tmp_path)
    assert tidemark("format", "-c", config, "-t", CLUSTER, *options).exit_code == 0
    if with_log:
        batch = control_batch(
            [leader_change(4, (4, 5), (4,))], base_offset=0, leader_epoch=LAST_EPOCH, timestamp_ms=1
        )
        path = tmp_path / "one/__cluster_metadata-0/00000000000000000000.log"
        path.write_bytes(batch)
    return config


def state_file(tmp_path: Path) -> QuorumStateFile:
    return QuorumStateFile(tmp_path / "one/__cluster_metadata-0", Disk())


def test_it_writes_a_quorum_state_whose_vote_is_spent(tmp_path: Path) -> None:
    config = home(tmp_path, "-I", SEVERAL)
    done = tidemark("directories", "abstain", "--epoch", 9, "-c", config)
    assert done.exit_code == 0, done.output
    assert "up to epoch 9" in done.output
    assert state_file(tmp_path).read() == abstain_until(9, LAST_EPOCH)


@pytest.mark.parametrize(
    ("options", "epoch", "with_log", "words"),
    [
        (("-I", SEVERAL), LAST_EPOCH - 1, True, ["--epoch=5", "at least 6"]),
        (("-s",), 9, True, ["node 4 is the only voter", "Start it"]),
        (("-I", SEVERAL), 9, False, ["node 4 never took part", "Start it"]),
    ],
)
def test_it_writes_nothing_where_it_does_not_fit(
    tmp_path: Path, options: tuple[str, ...], epoch: int, with_log: bool, words: list[str]
) -> None:
    config = home(tmp_path, *options, with_log=with_log)
    done = tidemark("directories", "abstain", "--epoch", epoch, "-c", config)
    assert done.exit_code == 1
    for word in words:
        assert word in done.stderr
    assert state_file(tmp_path).find() is None


@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    config = home(tmp_path, "-I", SEVERAL)
    path = tmp_path / "one/__cluster_metadata-0/quorum-state"
    path.write_bytes(content)
    done = tidemark("directories", "abstain", "--epoch", 9, "-c", config)
    assert done.exit_code == 1
    assert "move it away" in done.stderr
    assert path.read_bytes() == content
