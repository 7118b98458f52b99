"""The secret of a cluster: who may read its file, what is none, and that it is drawn once."""

from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.node.cluster_secret import (
    CHARACTERS_MIN,
    check_secret_among_several,
    draw_cluster_secret,
    read_cluster_secret,
)
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet
from runtime.disk import Disk
from runtime.rng import SystemRng
from tests.support.samples.config import BASE, TIERED

KEY = "tidemark.cluster.secret.file"
VOTERS = VoterSet(tuple(Voter(ReplicaKey(one)) for one in (1, 2, 3)))


def configured(path: Path | None, **more: str) -> BrokerConfig:
    entries = {**BASE, **TIERED, **more}
    if path is not None:
        entries[KEY] = str(path)
    return BrokerConfig.load(entries)[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(0o600)
    return path


def test_a_drawn_secret_is_read_and_never_drawn_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    assert draw_cluster_secret(path, Disk(), SystemRng())
    assert path.stat().st_mode & 0o777 == 0o600
    secret = read_cluster_secret(configured(path), Disk())
    assert secret is not None
    assert len(secret) >= CHARACTERS_MIN
    assert not draw_cluster_secret(path, Disk(), SystemRng())
    assert read_cluster_secret(configured(path), Disk()) == secret
    other = tmp_path / "other"
    assert draw_cluster_secret(other, Disk(), SystemRng())
    assert other.read_text() != path.read_text()


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_end_of_the_line_is_no_part_of_it(file: Path, end: str) -> None:
    file.write_bytes(("s" * CHARACTERS_MIN + end).encode())
    assert read_cluster_secret(configured(file), Disk()) == "s" * CHARACTERS_MIN


def test_without_a_file_or_a_tier_there_is_none(file: Path) -> None:
    assert read_cluster_secret(configured(None), Disk()) is None
    off = configured(file, **{"remote.log.storage.system.enable": "false"})
    assert read_cluster_secret(off, Disk()) is None, "and its empty file is nobody's concern"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\n",
        "s" * (CHARACTERS_MIN - 1),
        "s" * CHARACTERS_MIN + "\nsecond line\n",
        "s" * CHARACTERS_MIN + " ",
        "\u00f6" * CHARACTERS_MIN,
        "s" * 5_000,
    ],
    ids=["empty", "only a line end", "short", "two lines", "space", "no ASCII", "large"],
)
def test_bad_input_a_file_that_holds_no_secret(file: Path, content: str) -> None:
    file.write_text(content)
    with pytest.raises(ConfigError, match=rf"{KEY}.*{file}.*43.*tidemark format --cluster-secret"):
        read_cluster_secret(configured(file), Disk())


@pytest.mark.parametrize(
    ("mode", "is_taken"),
    [(0o600, True), (0o400, True), (0o440, True), (0o640, True), (0o660, False), (0o644, False)],
)
def test_bad_input_a_file_that_others_can_read(file: Path, mode: int, is_taken: bool) -> None:
    file.write_text("s" * CHARACTERS_MIN)
    file.chmod(mode)
    if is_taken:
        assert read_cluster_secret(configured(file), Disk())
        return
    with pytest.raises(ConfigError, match=rf"{KEY}.*chmod 600") as refusal:
        read_cluster_secret(configured(file), Disk())
    assert "sss" not in str(refusal.value)


def test_bad_input_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{KEY}.*must exist.*--cluster-secret"):
        read_cluster_secret(configured(tmp_path / "none"), Disk())
    with pytest.raises(ConfigError, match=rf"{KEY}.*must be readable"):
        read_cluster_secret(configured(tmp_path), Disk())


def test_bad_input_a_tier_among_several_controllers_without_the_secret(file: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{KEY}.*\[1, 2, 3\].*--cluster-secret"):
        check_secret_among_several(configured(None), VOTERS)
    check_secret_among_several(configured(file), VOTERS)
    without_tier = configured(None, **{"remote.log.storage.system.enable": "false"})
    check_secret_among_several(without_tier, VOTERS)
