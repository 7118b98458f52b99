"""The S3 endpoint of development and tests, seen from outside."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from botocore.exceptions import ClientError

from tests.support.brokers.process import alive, until
from tests.support.stores.s3 import START, S3Endpoint, running_s3


def start(*arguments: str, **options: object) -> "subprocess.Popen[str]":
    command = [sys.executable, str(START), "--port", "0", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload, no-any-return]


def test_objects_come_back_with_their_checksums(s3: S3Endpoint) -> None:
    bucket, client = s3.new_bucket(), s3.client()
    client.put_object(Bucket=bucket, Key="a/b", Body=b"tides", ChecksumCRC32C="Vu1QHg==")
    assert s3.keys(bucket) == {"a/b": 5}


def test_only_this_machine_reaches_it(s3: S3Endpoint) -> None:
    """Its own setting of the address, GATEWAY_LISTEN, gives the port alone."""
    port = int(s3.url.rpartition(":")[2])
    found = [one.laddr for one in psutil.net_connections("tcp") if one.status == "LISTEN"]
    assert [address.ip for address in found if address.port == port] == ["127.0.0.1"]


def test_a_wrong_checksum_is_refused(s3: S3Endpoint) -> None:
    with pytest.raises(ClientError, match="BadDigest"):
        s3.client().put_object(
            Bucket=s3.new_bucket(), Key="a", Body=b"tides", ChecksumCRC32C="AAAAAA=="
        )


@pytest.mark.long(seconds=5)
def test_two_at_once_know_nothing_of_each_other(s3: S3Endpoint, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    s3.client().put_object(Bucket=bucket, Key="big", Body=b"x" * 2_000_000)  # lies on disk
    with running_s3(tmp_path) as other:
        assert other.url != s3.url
        names = [one["Name"] for one in other.client().list_buckets()["Buckets"]]
        assert names == ["tidemark"]
    assert s3.client().get_object(Bucket=bucket, Key="big")["Body"].read() == b"x" * 2_000_000


def test_it_ends_on_sigterm_and_leaves_no_scratch_files(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with start("--bucket", "one", "--bucket", "two", env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready endpoint=")
        assert list(tmp_path.glob("localstack-*"))
        process.terminate()
        assert process.wait(30) == 0
    assert not list(tmp_path.glob("localstack-*"))


def test_it_ends_when_its_parent_was_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys;"
            "child = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True);"
            "print(child.pid, child.stdout.readline(), flush=True);"
            "child.wait()",
            *(sys.executable, str(START), "--port", "0", "--data", str(tmp_path)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    with parent:
        pid, ready, _ = parent.stdout.readline().split()
        assert ready == "ready"
        os.kill(parent.pid, signal.SIGKILL)
    until(lambda: not alive(int(pid)), "LocalStack ends by itself")


@pytest.mark.long(seconds=5)
def test_it_ends_when_its_parent_was_gone_before_it_began(tmp_path: Path) -> None:
    with start("--data", str(tmp_path), "--parent", "4194304") as process:  # above any real pid
        assert process.wait(60) == 0


@pytest.mark.long(seconds=5)
def test_a_bucket_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with start("--data", str(tmp_path), "--bucket", "A", stderr=subprocess.PIPE) as process:
        output, errors = process.communicate()
    assert process.returncode == 1
    assert output == ""
    assert "buckets could not be made" in errors


@pytest.mark.long(seconds=12)
def test_a_half_made_environment_is_made_anew(tmp_path: Path) -> None:
    """The installation fails here on purpose (no index), and must not count as made."""
    place = tmp_path / "environment"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").symlink_to(sys.executable)
    offline = {"PIP_NO_INDEX": "1", "TIDEMARK_LOCALSTACK_VENV": str(place)}
    for _ in range(2):
        with start("--prepare", env=os.environ | offline, stderr=subprocess.PIPE) as process:
            errors = process.communicate()[1]
        assert process.returncode != 0
        assert f"making {place}" in errors
        assert "failed with exit code" in errors
