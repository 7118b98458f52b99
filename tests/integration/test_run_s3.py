"""`make run-s3` as an application developer meets it: one command, a client, Ctrl-C."""

import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import ROOT, environment, free_ports, until
from tests.support.brokers.tiered_topics import TIERED, as_read, values
from tests.support.stores.s3 import S3Endpoint


class RunS3:
    """The command, started on free ports, with all that it prints in one file."""

    def __init__(self, directory: Path) -> None:
        self.log_file = directory / "run-s3.log"
        port, controller, http = free_ports(3)
        self.bootstrap = f"127.0.0.1:{port}"
        overrides = {
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "tidemark.http.listener": f"127.0.0.1:{http}",
        }
        self.command = [sys.executable, str(ROOT / "localstack" / "run_broker.py")]
        self.command += ["--s3-port", "0"]
        for key, value in overrides.items():
            self.command += ["--override", f"{key}={value}"]
        self.scratch = directory / "scratch"
        self.scratch.mkdir()
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                env=environment() | {"TMPDIR": str(self.scratch)},
            )

    def printed(self, pattern: str) -> str:
        """Wait until a match was printed; returns its first group."""

        def look() -> re.Match[str] | None:
            assert self.process.poll() is None, self.log_tail()
            return re.search(pattern, self.log_tail())

        found = until(look, f"{pattern!r} is printed")
        assert found is not None
        return found.group(1)

    def log_tail(self) -> str:
        return self.log_file.read_text(errors="replace")

    def family(self) -> list[psutil.Process]:
        """All that it started, directly or not."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def all_gone(self, family: list[psutil.Process]) -> None:
        alive = psutil.wait_procs(family, timeout=20)[1]
        assert alive == []
        assert list(self.scratch.iterdir()) == []


@pytest.fixture
def run_s3(tmp_path: Path) -> Iterator[RunS3]:
    started = RunS3(tmp_path)
    yield started
    if started.process.poll() is None:
        started.process.terminate()
        started.process.wait(60)
    print(started.log_tail()[-20_000:])


def test_records_go_to_the_bucket_and_come_back_and_ctrl_c_ends_it_all(run_s3: RunS3) -> None:
    url, bucket = run_s3.printed(r"S3 is ready: (http\S+)").rsplit("/", 1)
    data = Path(run_s3.printed(r"Tidemark on .*, data in (\S+), settings in "))
    program = run_s3.printed(r"\n  (\S*tidemark) topics create ")
    assert shutil.which(program), "what is printed to be typed cannot be typed"
    admin = AdminClient({"bootstrap.servers": run_s3.bootstrap})
    topic = NewTopic("tides", 1, 1, config=TIERED | {"segment.bytes": "1048576"})
    admin.create_topics([topic])["tides"].result(60)
    client = SimpleNamespace(bootstrap=run_s3.bootstrap, log_tail=run_s3.log_tail)
    sent = values(1_200)
    produce(client, "tides", sent)  # type: ignore[arg-type]
    partition = data / "logs" / "tides-0"
    until(lambda: len(list(partition.glob("*.log"))) == 1, "closed segments have left the disk")
    keys = S3Endpoint(url).keys(bucket)
    assert len([key for key in keys if key.endswith(".manifest")]) >= 5, keys
    assert read_all(client, "tides") == as_read(sent)  # type: ignore[arg-type]

    family = run_s3.family()
    assert len(family) == 3, "LocalStack, the broker and its tier"
    run_s3.process.send_signal(signal.SIGINT)
    assert run_s3.process.wait(60) == 0
    run_s3.all_gone(family)


def test_sigterm_while_it_starts_leaves_nothing(run_s3: RunS3) -> None:
    run_s3.printed("(starting LocalStack)")
    until(run_s3.family, "LocalStack was started")
    family = run_s3.family()
    run_s3.process.terminate()
    assert run_s3.process.wait(60) == 1
    run_s3.all_gone(family)


def test_the_broker_does_not_run_on_without_its_store(run_s3: RunS3) -> None:
    run_s3.printed("(Tidemark) on")
    family = run_s3.family()
    (store,) = [one for one in family if "server.py" in " ".join(one.cmdline())]
    store.kill()
    assert run_s3.process.wait(60) == 1
    (kept,) = run_s3.scratch.iterdir()
    assert "run-s3: LocalStack ended by SIGKILL, without being asked to" in run_s3.log_tail()
    assert f"its log is {kept}, and ends with:" in run_s3.log_tail()
    kept.unlink()
    run_s3.all_gone(family)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, str(ROOT / "localstack" / "run_broker.py"), "--s3-port"]
        ended = subprocess.run(
            [*command, str(port)], check=False, capture_output=True, text=True, timeout=120
        )
    assert ended.returncode == 1
    assert f"port {port} cannot be used" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_make_run_s3_is_this_command() -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "run-s3"], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert "python localstack/run_broker.py" in shown.stdout
