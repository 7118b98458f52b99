"""The wheel as strangers get it: in an environment of its own, away from this tree."""

import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from tests.support.brokers.page_reader import Reader, environment
from tests.support.brokers.process import free_ports, until

pytestmark = pytest.mark.lasts(seconds=20)

ROOT = Path(__file__).parents[2]
OURS = (
    "kafka_protocol", "runtime", "kafka_client", "local_log", "rsm_plugins", "rlmm", "rlm",
    "broker",
)  # fmt: skip
CLAIMED = "the claim on the store is taken"
TYPED_PLUGIN = """
from collections.abc import Mapping
from typing import Any

from tidemark import __version__
from tidemark.errors import TidemarkError
from tidemark.plugins import LayoutStorageManager, ObjectStore, RemoteStorageError, settings

assert issubclass(RemoteStorageError, TidemarkError)


class Mine(LayoutStorageManager):
    SETTINGS = (settings.text("file", "The database.", allowed="a path", required=True),)

    def open_store(self, values: Mapping[str, Any]) -> ObjectStore:
        reveal_type(__version__)
        raise RemoteStorageError("no store")
"""


def run(*command: object, cwd: Path, programs: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), check=False, cwd=cwd, env=environment(programs),
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that holds the wheel, and what an author's tests need."""
    place = tmp_path_factory.mktemp("wheel")
    here = Path(sys.executable).parent
    quiet = ("-q", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *quiet, "--no-deps", "-w", place, ROOT, cwd=place,
        programs=here)  # fmt: skip
    [wheel] = place.glob("tidemark_broker-*.whl")
    run(sys.executable, "-m", "venv", place / "env", cwd=place, programs=here)
    found = place / "env" / "bin"
    run(found / "python", "-m", "pip", "install", *quiet, wheel, "pytest", "mypy", cwd=place,
        programs=found)  # fmt: skip
    return found


@pytest.mark.slow
@pytest.mark.long  # the guide itself: test_plugin_guide.py
@pytest.mark.timeout(600)
def test_the_plugin_guide_works_with_the_wheel(programs: Path, tmp_path: Path) -> None:
    ports = dict(zip(("9092", "9093"), map(str, free_ports(2)), strict=True))
    Reader(tmp_path, programs, ports).read_all()


@pytest.mark.slow
def test_an_authors_types_are_checked(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TYPED_PLUGIN)
    said = run("mypy", "--strict", "mine.py", cwd=tmp_path, programs=programs)
    assert 'Revealed type is "str"' in said or 'Revealed type is "builtins.str"' in said
    (tmp_path / "wrong.py").write_text(TYPED_PLUGIN.replace("-> ObjectStore", "-> int"))
    wrong = subprocess.run(
        [programs / "mypy", "--strict", "wrong.py"], check=False, cwd=tmp_path,
        env=environment(programs), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert wrong.returncode == 1
    assert "incompatible with return type" in wrong.stdout


@pytest.mark.slow
def test_a_project_with_packages_of_our_names(programs: Path, tmp_path: Path) -> None:
    """Its own `broker`, `rlm` ... lie where the broker is started, and are not imported."""
    for name in OURS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not this one')\n")
    port, controller, http = free_ports(3)
    (tmp_path / "server.properties").write_text(
        f"""node.id=1
process.roles=broker,controller
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
log.dirs={tmp_path}/logs
tidemark.http.listener=127.0.0.1:{http}
remote.log.storage.system.enable=true
remote.log.storage.manager.class.name=rsm_plugins.local_fs:LocalFsRemoteStorageManager
rlmm.config.remote.log.metadata.topic.replication.factor=1
rsm.config.dir={tmp_path}/remote
"""
    )
    run("tidemark", "format", "--config", "server.properties", "--standalone", cwd=tmp_path,
        programs=programs)  # fmt: skip
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        broker = subprocess.Popen(
            [programs / "tidemark", "start", "--config", "server.properties"], cwd=tmp_path,
            env=environment(programs), stdout=output, stderr=output,
        )  # fmt: skip

    def is_up() -> bool:
        assert broker.poll() is None, log.read_text()
        return CLAIMED in log.read_text()

    try:
        until(is_up, "the tier has reached its store", deadline_s=60)
        for path in ("", "console/page.js", "console/page.css", "console/icon.svg"):
            with urlopen(f"http://127.0.0.1:{http}/{path}", timeout=30) as answer:
                assert answer.read()
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
        producer.produce("theirs", b"record")
        assert producer.flush(30) == 0
        broker.terminate()
        assert broker.wait(30) == 0, log.read_text()
    finally:
        broker.kill()
