"""`tidemark rsm check`: what it prints, what it leaves, how it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rsm_plugins.contract.run import promise_names

pytestmark = pytest.mark.lasts(seconds=35)

LOCAL_FS = "rsm_plugins.local_fs:LocalFsRemoteStorageManager"
BROKEN = """
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
import threading

from rsm_plugins.api import RemoteStorageError, RetriableRemoteStorageError
from rsm_plugins.retries import Retries
from rsm_plugins.contract import run

class EndIsExclusive(LocalFsRemoteStorageManager):
    def fetch_log_segment(self, metadata, start_position, end_position=None):
        last = end_position - 1 if end_position and end_position > start_position else end_position
        return super().fetch_log_segment(metadata, start_position, last)

class Explodes(LocalFsRemoteStorageManager):
    def configure(self, configs):
        raise KeyError("endpoint")

class NeverReads(LocalFsRemoteStorageManager):
    is_first = True

    def fetch_log_segment(self, metadata, start_position, end_position=None):
        if NeverReads.is_first:
            NeverReads.is_first = False
            return super().fetch_log_segment(metadata, start_position, end_position)
        print("reading", flush=True)
        threading.Event().wait()

class NeverReadsAndIsGivenUp(NeverReads):
    def configure(self, configs):
        run.PROMISE_DEADLINE_S = 2.0
        super().configure(configs)

class NeverReadsTheFirst(NeverReadsAndIsGivenUp):
    def fetch_log_segment(self, metadata, start_position, end_position=None):
        NeverReads.is_first = False
        return super().fetch_log_segment(metadata, start_position, end_position)

class IgnoresRanges(LocalFsRemoteStorageManager):
    def fetch_log_segment(self, metadata, start_position, end_position=None):
        if end_position is not None and end_position < metadata.segment_size_bytes - 1:
            raise RemoteStorageError("the store ignores Range")
        return super().fetch_log_segment(metadata, start_position, end_position)

class Repeats(LocalFsRemoteStorageManager):
    @Retries(timeout_s=9, attempts=2).repeated
    def copy_log_segment_data(self, metadata, data):
        raise RetriableRemoteStorageError("503")

class Refused(LocalFsRemoteStorageManager):
    def copy_log_segment_data(self, metadata, data):
        raise RemoteStorageError("PUT http://h/a: the store answers 401")

class RefusedLater(LocalFsRemoteStorageManager):
    is_first = True

    def copy_log_segment_data(self, metadata, data):
        if RefusedLater.is_first:
            RefusedLater.is_first = False
            return super().copy_log_segment_data(metadata, data)
        raise RemoteStorageError(f"PUT http://h/{id(metadata)}: the store answers 503")
"""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tidemark.cli", "rsm", "check", *map(str, arguments)]


def check(*arguments: object, path: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*arguments),
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(path or "")},
    )


def files(path: Path) -> list[str]:
    return [str(one.relative_to(path)) for one in path.rglob("*")]


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    (tmp_path / "plugins_of_mine.py").write_text(BROKEN)
    return tmp_path


def test_all_kept_is_0_with_a_table_and_figures_and_nothing_is_left(tmp_path: Path) -> None:
    store = tmp_path / "store"
    done = check(LOCAL_FS, "--config", f"dir={store}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kept       Ranges are inclusive at both ends" in done.stdout
    assert "p50" in done.stdout
    assert "MB/s" in done.stdout
    assert f"{LOCAL_FS}: {len(promise_names()) - 9} promises kept, 0 broken, 9 not asked" in (
        done.stdout
    )
    assert done.stderr == ""
    assert files(store) == []


def test_json_has_every_promise_and_the_speed(tmp_path: Path) -> None:
    done = check(LOCAL_FS, "--config", f"dir={tmp_path / 'store'}", "--json")
    report = json.loads(done.stdout)
    assert [one["name"] for one in report["promises"]] == promise_names()
    assert {one["verdict"] for one in report["promises"]} == {"kept", "not asked"}
    assert report["speed"]["copy_mb_s"] > 0
    assert report["speed"]["range_1mib"]["p95_ms"] > 0
    assert report["left_behind"] == []


def test_settings_come_from_a_server_properties_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=1\nlog.dirs=/nowhere\nrsm.config.dir={tmp_path / 'one'}\n")
    check(LOCAL_FS, "--config-file", file, "--no-speed")
    assert (tmp_path / "one").is_dir()
    override = f"rsm.config.dir={tmp_path / 'two'}"
    check(LOCAL_FS, "--config-file", file, "--no-speed", "--config", override)
    assert (tmp_path / "two").is_dir()


def test_a_broken_promise_is_2_with_name_and_reason(plugins: Path) -> None:
    store = plugins / "store"
    name = "plugins_of_mine:EndIsExclusive"
    done = check(name, "--config", f"dir={store}", "--no-speed", path=plugins)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "BROKEN     Ranges are inclusive at both ends" in done.stdout
    assert "(test_ranges_are_inclusive_at_both_ends)" in done.stdout
    assert "bytes [0, 1]: got 1 bytes, expected 2" in done.stdout
    assert "MB/s" not in done.stdout
    assert files(store) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no_such_module:Plugin"], "cannot import no_such_module"),
        (["not a name"], "allowed is `package.module:Class`"),
        (["rsm_plugins.api:StoredObject"], "not a subclass"),
        (["rsm_plugins.api:RemoteStorageManager"], "abstract"),
        ([LOCAL_FS], "rsm.config.dir is missing"),
        ([LOCAL_FS, "--config", "dir"], "--config=dir: must be key=value"),
        ([LOCAL_FS, "--config-file", "no_such_file"], "no_such_file"),
        ([LOCAL_FS, "--no-such-option"], "--no-such-option"),
        (["plugins_of_mine:Explodes"], "KeyError('endpoint')"),
    ],
)
def test_what_cannot_be_asked_is_1_with_one_message(
    plugins: Path, arguments: list[str], words: str
) -> None:
    done = check(*arguments, path=plugins)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Refused", "a small segment cannot be copied: RemoteStorageError: PUT http://h/a: the"),
        ("IgnoresRanges", "a small segment cannot be read: RemoteStorageError: the store ignores"),
        ("Repeats", "a small segment cannot be copied: RetriableRemoteStorageError: 503"),
        ("NeverReadsTheFirst", "cannot be read: the call did not return within 2 s: it waits in"),
    ],
)
def test_one_cause_of_all_is_one_message_before_any_promise(
    plugins: Path, name: str, words: str
) -> None:
    store = plugins / "store"
    done = check(f"plugins_of_mine:{name}", "--config", f"dir={store}", path=plugins)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"tidemark: plugins_of_mine:{name}: no promise was asked: a small"
    )
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert "left" not in done.stderr
    assert "BROKEN" not in done.stdout
    assert files(store) == []


def test_five_broken_for_one_reason_are_the_last(plugins: Path) -> None:
    arguments = ("--config", f"dir={plugins / 'store'}", "--json")
    done = check("plugins_of_mine:RefusedLater", *arguments, path=plugins)
    assert done.returncode == 2, done.stderr
    report = json.loads(done.stdout)
    verdicts = [one["verdict"] for one in report["promises"]]
    last = len(verdicts) - verdicts[::-1].index("broken")
    count = len(verdicts) - last
    assert verdicts[:last].count("broken") == 5
    assert set(verdicts[last:]) == {"not asked"}
    assert (
        f"5 promises broke for one reason, {count} more were not asked: raised Rem"
        in (report["stopped_for"])
    )
    assert [one["name"] for one in report["promises"]] == promise_names()


def test_a_misspelt_setting_is_named_once_and_again_at_the_end(tmp_path: Path) -> None:
    settings = ("--config", f"dir={tmp_path / 'store'}", "--config", "dri=x")
    done = check(LOCAL_FS, *settings, "--no-speed")
    said = "unknown setting is ignored: rsm.config.dri; did you mean rsm.config.dir?"
    assert done.stderr == f"{said}\n"
    assert done.stdout.count(said) == 1
    assert done.stdout.splitlines()[-2] == said


@pytest.fixture
def _heard() -> Iterator[None]:
    """A shell that starts the tests in the background lets them, and their children, ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_heard")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_cleans_up(plugins: Path, how: signal.Signals) -> None:
    store = plugins / "store"
    with subprocess.Popen(
        command("plugins_of_mine:NeverReads", "--config", f"dir={store}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(plugins)},
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "reading\n":
            assert process.poll() is None
        assert len(files(store)) > 0
        process.send_signal(how)
        found, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert "ended while this was asked: A copied segment reads back byte for byte." in found
    assert "0 promises kept, 0 broken" in found
    assert files(store) == []


def test_each_promise_has_its_line_when_it_was_asked_also_through_a_pipe(plugins: Path) -> None:
    name = "plugins_of_mine:NeverReadsAndIsGivenUp"
    with subprocess.Popen(
        command(name, "--config", f"dir={plugins / 'store'}", "--no-speed"),
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(plugins), "PYTHONUNBUFFERED": ""},
    ) as process:
        assert process.stdout is not None
        # The first promise hangs, the next one has begun: by then the verdict is here.
        lines = iter(process.stdout.readline, "")
        assert next(lines) == "reading\n"
        assert next(lines).startswith("BROKEN     A copied segment reads back byte for byte.")
        assert "did not return within" in (reason := next(lines))
        assert "it waits in fetch_log_segment" in reason
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_it_needs_no_pytest(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "from tidemark.cli import main\n"
        f"sys.argv = ['tidemark', 'rsm', 'check', '{LOCAL_FS}', '--no-speed',"
        f" '--config', 'dir={tmp_path / 'store'}']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
