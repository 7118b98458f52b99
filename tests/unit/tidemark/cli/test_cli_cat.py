"""`tidemark cat` as its user runs it, on a generated bucket."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from pipeline import errors
from tests.support.lake.bucket import Bucket
from tests.support.samples.command_line import tidemark
from tidemark.commands.cat import command
from tidemark.remote.options import WrongOptionError

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """`orders` with offsets 0 to 5,999, and a value that is not text."""
    with Bucket(tmp_path_factory.mktemp("cat") / "bucket") as made:
        orders = made.partition("orders").batches(60, 100).append((1, None, b"\xff", []))
        orders.roll().copy()
        yield made


def cat(*arguments: object, code: int = 0) -> Result:
    done = tidemark("cat", *arguments)
    assert done.exit_code == code, done.output
    return done


def place(bucket: Bucket) -> str:
    return f"--bucket=file://{bucket.address.settings['dir']}"


def test_lines_go_to_stdout_and_nothing_else(bucket: Bucket) -> None:
    done = cat("orders", place(bucket), "--from=5998", "--columns=offset,value")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"offset": 5_998, "value": "value of 5998"},
        {"offset": 5_999, "value": "value of 5999"},
        {"offset": 6_000, "value_base64": "/w=="},
    ]
    assert "reading" not in done.stderr


def test_files_are_complete(bucket: Bucket, tmp_path: Path) -> None:
    for kind in ("parquet", "arrow"):
        out = tmp_path / f"orders.{kind}"
        cat("orders", place(bucket), f"--format={kind}", f"--output={out}", "--to=10")
        read = pq.read_table(out) if kind == "parquet" else pa.ipc.open_file(out).read_all()
        assert read.column("offset").to_pylist() == [*range(10)]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["orders.arrow", "orders.parquet"]


def test_arrow_may_go_through_a_pipe(bucket: Bucket) -> None:
    done = cat("orders", place(bucket), "--format=arrow")
    assert pa.ipc.open_stream(done.stdout_bytes).read_all().num_rows == 6_001


def test_a_dash_is_stdout_and_no_file_of_that_name(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cat("orders", place(bucket), "--output=-", "--from=5999", "--columns=offset")
    assert [json.loads(line)["offset"] for line in done.stdout.splitlines()] == [5_999, 6_000]
    assert list(tmp_path.iterdir()) == []


def test_it_ends_after_so_many_records(bucket: Bucket) -> None:
    done = cat("orders", place(bucket), "-n", 3, "-p", 0, "--columns=offset")
    assert [json.loads(line)["offset"] for line in done.stdout.splitlines()] == [0, 1, 2]


def test_a_reader_that_has_seen_enough_ends_it_quietly(bucket: Bucket) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidemark.cli", "cat", "orders", place(bucket)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdout.readline()
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
        assert b"Broken" not in process.stderr.read()
    assert process.returncode == 0


def test_a_closed_stdout_is_one_line(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it after `>&-`
    with pytest.raises(WrongOptionError, match="stdout is closed: give --output FILE"):
        command.main(["orders", place(bucket)], standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("orders", "-b", "127.0.0.1:1"), "127.0.0.1:1: Connection refused", 1),
        (("orders", "-b", "127.0.0.1:1"), "; --bootstrap-server names another one, --bucket a", 1),
        (("orders", "--bucket=/not/there"), "the store /not/there cannot be used from host", 1),
        (("ordres", "BUCKET"), "ordres", 1),
        (("orders", "BUCKET", "--columns=colour"), "there is no column 'colour'", 1),
        (("orders", "BUCKET", "--format=parquet"), "--format=parquet needs --output FILE", 2),
        (("orders", "BUCKET", "--storage-config=x"), "must be key=value", 1),
        (("orders", "BUCKET", "--partition=7"), "there is no partition 7", 1),
        (("orders", "BUCKET", "--log-start=7=1"), "a log start is given for orders-7", 1),
        (("orders", "BUCKET", *2 * ("--log-start=0=1",)), "given twice for partition 0", 2),
        (
            ("orders", "--bootstrap-server=h:1", "--log-start=0=1"),
            "brokers know where logs start",
            1,
        ),
        (
            ("orders", "BUCKET", "--isolation=read_uncommitted", "--command-config=COMMITTED"),
            "isolation=read_uncommitted contradicts the client setting",
            1,
        ),
    ],
)
def test_mistakes_are_one_line(
    bucket: Bucket, tmp_path: Path, arguments: tuple[str, ...], words: str, code: int
) -> None:
    committed = tmp_path / "client.properties"
    committed.write_text("isolation.level=read_committed\n")
    given = [place(bucket) if one == "BUCKET" else one for one in arguments]
    given = [one.replace("COMMITTED", str(committed)) for one in given]
    done = cat(*given, code=code)
    assert words in done.stderr
    assert done.stdout == ""


def test_without_pyarrow_another_command_is_named(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    done = cat("orders", place(bucket), code=1)
    assert "pip install 'DIRECTORY-OF-THE-CLONE[arrow]'; `tidemark consume orders`" in done.stderr


def test_nothing_below_a_log_start_is_printed(bucket: Bucket) -> None:
    done = cat("orders", place(bucket), "--columns=offset", "--log-start=0=5999")
    assert [json.loads(line)["offset"] for line in done.stdout.splitlines()] == [5_999, 6_000]
    refused = cat("orders", place(bucket), "--log-start=5999", code=2)
    assert "allowed is PARTITION=OFFSET" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("yesterday", "allowed is earliest"),
        ("end-10", "is for `tidemark consume`"),
        ("s@99999999999999999", "no time of a calendar"),
    ],
)
def test_a_place_that_is_none_is_explained(bucket: Bucket, text: str, words: str) -> None:
    done = cat("orders", place(bucket), f"--from={text}", code=2)
    assert words in " ".join(done.stderr.split())
