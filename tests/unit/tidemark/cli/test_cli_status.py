"""`tidemark status` where nobody answers: exit code, last lines of a development broker."""

from pathlib import Path

import pytest

from runtime.disk import Disk
from tests.support.samples.command_line import tidemark
from tidemark.commands.status import is_here, last_lines


def test_logs_are_shown_the_newest_first_and_their_last_lines(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(20)]
    for name, modified_s in (("server.log", 10), ("broker/server.log", 30), ("c1/server.log", 20)):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join([*lines, f"of {name} \x1b[2J"]))
        Disk().set_modified_ms(file, modified_s * 1000)
    segment = tmp_path / "logs" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(b"records")
    assert [*last_lines(tmp_path, Disk())] == [
        line
        for name in ("broker/server.log", "c1/server.log", "server.log")
        for line in (
            f"\n{tmp_path / name}:",
            *(f"  line {number}" for number in range(16, 20)),
            f"  of {name} \\x1b[2J",
        )
    ]


def test_of_a_long_line_the_end_is_shown(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("x" * 10_000 + "END")
    _, line = last_lines(tmp_path, Disk())
    assert line.endswith("END")
    assert len(line) < 5_000


def test_without_a_directory_there_is_nothing(tmp_path: Path) -> None:
    assert [*last_lines(tmp_path / "none", Disk())] == []


@pytest.mark.parametrize(
    ("addresses", "here"),
    [("127.0.0.1:1", True), ("h:1,localhost:2", True), ("[::1]:1", True), ("h:1", False)],
)
def test_loopback_is_this_machine(addresses: str, here: bool) -> None:
    assert is_here(addresses) is here


@pytest.mark.parametrize("option", ["--bootstrap-server", "--bootstrap-controller"])
def test_a_cluster_that_is_not_reached_is_2_with_the_last_lines(
    tmp_path: Path, option: str
) -> None:
    (tmp_path / "server.log").write_text("it ran out of disk\n")
    done = tidemark("status", option, "127.0.0.1:1", "--data", tmp_path)
    assert done.exit_code == 2, done.output
    assert done.stdout.startswith("tidemark ")
    assert "127.0.0.1:1: Connection refused" in done.stdout
    assert done.stdout.endswith(f"\n{tmp_path}/server.log:\n  it ran out of disk\n")
    elsewhere = tidemark("status", option, "nowhere.invalid:1", "--data", tmp_path)
    assert elsewhere.exit_code == 2
    assert "out of disk" not in elsewhere.stdout


def test_a_wrong_option_is_1_for_2_means_not_reached() -> None:
    assert tidemark("status", "--no-such-option").exit_code == 1
