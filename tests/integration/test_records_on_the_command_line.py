"""`tidemark produce` and `tidemark consume`, typed into shells with pipes, on a tiered broker.

Only real processes show what a pipe, a signal and librdkafka's own threads do to them: what stands
on stderr, which code they end with, and that records of the remote tier come like any others.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.brokers.process import ROOT, BrokerProcess, environment, free_ports, until
from tests.support.brokers.tiered_topics import create, tiered_away

pytestmark = [pytest.mark.lasts(seconds=45)]
SPARK_PAGE = ROOT / "docs" / "spark.md"
SHELL_S = 60.0
ABSENT_S = 30.0
"""A command gives up after five seconds; the rest is for a busy machine."""
Shell = Callable[..., "subprocess.CompletedProcess[str]"]


def shell_environment(directory: Path, broker: BrokerProcess) -> dict[str, str]:
    """Where `tidemark` is a command, its broker is known by the variable, and no pyarrow is."""
    directory.mkdir()
    command = directory / "tidemark"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tidemark.cli "$@"\n')
    command.chmod(0o755)
    for name in ("pyarrow", "numpy"):
        (directory / f"{name}.py").write_text("raise ImportError('not installed')\n")
    return environment() | {
        "PATH": f"{directory}:{os.environ['PATH']}",
        "PYTHONPATH": f"{directory}:{ROOT}",
        "TIDEMARK_BOOTSTRAP_SERVER": broker.bootstrap,
    }


@pytest.fixture
def env(tmp_path: Path, shared_tiered_broker: BrokerProcess) -> dict[str, str]:
    return shell_environment(tmp_path / "bin", shared_tiered_broker)


@pytest.fixture
def shell(tmp_path: Path, env: dict[str, str]) -> Shell:
    def typed(line: str, *, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=SHELL_S,
            check=False,
        )
        assert done.returncode == code, done.stdout[-2_000:] + done.stderr
        assert "Traceback" not in done.stderr
        assert "rdkafka" not in done.stderr
        return done

    return typed


@pytest.mark.smoke
def test_lines_go_in_and_come_out(shell: Shell, topic: str) -> None:
    done = shell(
        f"""seq 1 500 | sed 's/.*/k&:{{"n": &}}/' | tidemark produce {topic} -K : -H src=seq"""
    )
    assert (done.stdout, done.stderr) == (f"{topic}: 500 records acknowledged\n", "")
    lines = shell(f"tidemark consume {topic} --value json").stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert [one["value"]["n"] for one in records] == [*range(1, 501)]
    assert [one["offset"] for one in records] == [*range(500)]
    assert (records[6]["key"], records[6]["partition"]) == ("k7", 0)
    assert records[6]["headers"] == [{"key": "src", "value": "seq"}]
    assert records[6]["timestamp"].endswith("Z")
    last = shell(f"tidemark consume -t {topic} -o -2 -K ' ' -c 1")
    assert last.stdout == 'k499 {"n": 499}\n'


def test_old_records_come_from_the_remote_tier_like_any_others(
    shell: Shell, shared_tiered_broker: BrokerProcess, topic: str
) -> None:
    create(shared_tiered_broker, topic, remote_storage_enable="true", local_retention_bytes="1")
    pad = "x" * 90
    shell(f"seq 1 40000 | sed 's/$/{pad}/' > lines; tidemark produce {topic} -l lines -z none")
    tiered_away(shared_tiered_broker, topic)
    digest = hashlib.md5(b"".join(b"%d%s\n" % (n, pad.encode()) for n in range(1, 40_001)))
    assert shell(f"tidemark consume {topic} | md5sum").stdout.split()[0] == digest.hexdigest()
    assert shell(f"tidemark consume {topic} --from 4 -n 2").stdout == f"5{pad}\n6{pad}\n"
    done = shell(f"tidemark consume {topic} --from -1h -n 1 --output hex")
    assert bytes.fromhex(done.stdout).decode() == f"1{pad}"


def test_a_reader_that_has_enough_ends_it_with_zero(shell: Shell, topic: str) -> None:
    shell(f"seq 1 20000 | tidemark produce {topic}")
    assert shell(f"tidemark consume {topic} | head -2").stdout == "1\n2\n"
    quiet = shell(f"tidemark consume {topic} --follow --from end-2 | head -1")
    assert (quiet.stdout, quiet.stderr) == ("19999\n", "")


def test_ctrl_c_ends_what_follows_with_zero_and_commits_for_its_group(
    shell: Shell, env: dict[str, str], topic: str
) -> None:
    shell(f"seq 1 3 | tidemark produce {topic}")
    command = ["tidemark", "consume", topic, "--follow", "-G", f"group-of-{topic}"]
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        seen = [process.stdout.readline() for _ in range(3)]
        shell(f"echo later | tidemark produce {topic}")
        seen.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=SHELL_S)
    finally:
        process.kill()
    assert ("".join(seen), rest, said) == ("1\n2\n3\nlater\n", "", "")
    assert process.returncode == 0
    again = shell(f"tidemark consume {topic} -G group-of-{topic}")
    assert again.stdout == ""
    assert f"there is no record of {topic} to print" in again.stderr


def test_a_group_continues_behind_what_was_printed(shell: Shell, topic: str) -> None:
    shell(f"seq 1 10 | tidemark produce {topic}")
    group = f"tidemark consume {topic} --group of-{topic}"
    assert shell(f"{group} -n 3").stdout == "1\n2\n3\n"
    assert shell(group).stdout == "4\n5\n6\n7\n8\n9\n10\n"


def test_what_is_wrong_is_one_line_and_one(shell: Shell, topic: str) -> None:
    shell(f"seq 1 3 | tidemark produce {topic}")
    for line, said in [
        (f"tidemark consume {topic}x", f"there is no topic {topic}x at 127.0.0.1:"),
        (f"tidemark consume {topic} -p 4", f"there is no partition 4 of {topic}: it has partition"),
        (f"tidemark produce {topic} -p 4 < /dev/null", f"there is no partition 4 of {topic}"),
        (f"tidemark consume {topic} --from 9", f"offset 9 is out of range: {topic}-0 holds 0 to 2"),
    ]:
        done = shell(line, code=1)
        assert said in done.stderr, line
        assert (done.stdout, done.stderr.count("\n")) == ("", 1), line


@pytest.mark.parametrize("command", ["consume", "produce"])
def test_a_broker_that_is_not_there_is_one_line_soon(shell: Shell, command: str) -> None:
    (port,) = free_ports(1)
    began = time.monotonic()
    done = shell(f"echo x | tidemark {command} any -b 127.0.0.1:{port}", code=1)
    assert time.monotonic() - began < ABSENT_S
    assert done.stderr.startswith(f"tidemark: no broker answers at 127.0.0.1:{port} (")
    assert "Connection refused" in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


def test_lines_that_fail_are_named_and_the_others_are_written(shell: Shell, topic: str) -> None:
    shell("echo a:small > lines; head -c 2000000 /dev/zero | tr '\\0' x | sed 's/^/b:/' >> lines")
    shell("echo >> lines; echo c:small >> lines; echo none >> lines; echo d:unread >> lines")
    done = shell(f"tidemark produce {topic} --file lines -K :", code=1)
    assert done.stdout == f"{topic}: 2 records acknowledged\n"
    assert "line 2: Broker: Message size too large" in done.stderr
    assert "1 record failed" in done.stderr
    assert "line 4: there is no key separator ':'; no line from there on was sent" in done.stderr
    assert shell(f"tidemark consume {topic} -K :").stdout == "a:small\nc:small\n"


def test_the_page_works_as_it_stands(shell: Shell) -> None:
    page = (ROOT / "docs" / "records-from-the-command-line.md").read_text()
    lines = page.partition("```\n")[2].partition("```")[0].splitlines()
    assert lines.pop() == "tidemark consume gauges --follow"
    if shutil.which("jq") is None:
        lines = [line for line in lines if "jq" not in line]
    printed = "".join(shell(line).stdout for line in lines)
    assert printed.startswith('gauges: 2 records acknowledged\n{"cm": 212}\n{"cm": 187}\n')
    assert [json.loads(line)["key"] for line in printed.splitlines()[-2:]] == ["lisbon", "porto"]


def test_the_recipes_for_polars_and_duckdb_work_as_they_stand(
    shell: Shell, shared_tiered_broker: BrokerProcess
) -> None:
    pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    given = "".join(f'{{"gauge": {n % 3}, "centimetres": {n}}}\n' for n in range(30))
    shell(f"tidemark produce tides <<'END'\n{given}END")
    found = re.findall(r"^```\n(import .*?)^```$", SPARK_PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert [code.split()[1] for code in found] == ["polars", "duckdb"]
    for code in found:
        done = subprocess.run(
            [sys.executable, "-c", code.replace("127.0.0.1:9092", shared_tiered_broker.bootstrap)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=SHELL_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert re.findall(r"\D([012])\D+(2[789])\D", done.stdout) == [
            ("0", "27"),
            ("1", "28"),
            ("2", "29"),
        ]


def test_new_records_are_printed_while_it_follows(
    shell: Shell, env: dict[str, str], tmp_path: Path, topic: str
) -> None:
    shell(f"echo first | tidemark produce {topic}")
    out = tmp_path / "followed"
    with out.open("wb") as file:
        process = subprocess.Popen(
            ["tidemark", "consume", topic, "--follow", "-n", "3"], env=env, stdout=file
        )
    try:
        until(lambda: out.read_bytes() == b"first\n", "the first record is printed")
        shell(f"printf 'second\\nthird\\n' | tidemark produce {topic}")
        assert process.wait(SHELL_S) == 0
    finally:
        process.kill()
    assert out.read_bytes() == b"first\nsecond\nthird\n"
