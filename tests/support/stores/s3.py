"""A real S3 endpoint for tests: LocalStack without Docker, one for the whole pytest run.

`localstack/start.py` makes its environment on the first use (`make test` does it beforehand). The
endpoint keeps no state but its buckets: every test takes one of its own.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

START = Path(__file__).resolve().parents[3] / "localstack" / "start.py"
REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
"""For the environment of whoever talks to it: a broker, a plugin, a command."""


class S3Endpoint:
    """Where S3 answers, and what a test needs to look at it from outside.

    Attributes:
        pid: of the process that serves it; 0 where another started it.
    """

    def __init__(self, url: str, pid: int = 0) -> None:
        self.url, self.pid = url, pid

    def new_bucket(self) -> str:
        """Make a bucket that no other test knows."""
        name = f"test-{uuid.uuid4().hex}"
        self.client().create_bucket(Bucket=name)
        return name

    def client(self) -> Any:  # boto3 makes its classes at run time
        """A boto3 client that tries once: a test wants to see failures."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"total_max_attempts": 1}),
        )

    def keys(self, bucket: str, prefix: str = "") -> dict[str, int]:
        """Every object below `prefix`, with its size in bytes."""
        pages = self.client().get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=prefix
        )  # fmt: skip
        return {one["Key"]: one["Size"] for page in pages for one in page.get("Contents", [])}


@contextmanager
def running_s3(data: Path) -> Iterator[S3Endpoint]:
    """Start LocalStack with scratch files below `data`; ended afterwards, whatever happened."""
    data.mkdir(parents=True, exist_ok=True)
    log = data / "localstack.log"
    command = [sys.executable, str(START), "--port", "0", "--data", str(data / "files")]
    command += ["--parent", str(os.getpid())]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("ready endpoint="), f"LocalStack ended:\n{log.read_text()}"
            yield S3Endpoint(line.strip().partition("=")[2], process.pid)
        finally:
            process.terminate()
            try:
                process.wait(20)
            finally:
                process.kill()
