"""`tidemark rsm check` on a real S3 endpoint: what it finds, and an empty bucket after it."""

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from harness_s3 import CREDENTIALS

if TYPE_CHECKING:
    from harness_s3 import S3Endpoint

PLUGIN = "rsm_plugins.s3:S3RemoteStorageManager"


@pytest.mark.slow
def test_every_promise_is_kept_on_s3_and_the_bucket_is_empty_after_it(s3: "S3Endpoint") -> None:
    bucket = s3.new_bucket()
    settings = {"bucket": bucket, "region": "us-east-1", "endpoint.url": s3.url}
    options = [word for key, value in settings.items() for word in ("--config", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "tidemark.cli", "rsm", "check", PLUGIN, "--json", *options,
         "--unreachable", "endpoint.url=http://127.0.0.1:9"],
        check=False, capture_output=True, text=True, timeout=280, env=os.environ | CREDENTIALS,
    )  # fmt: skip
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert [one for one in report["promises"] if one["verdict"] != "kept"] == []
    assert done.returncode == 0, done.stderr
    assert 0 < report["speed"]["first_byte"]["p50_ms"] <= report["speed"]["range_1mib"]["p95_ms"]
    assert report["left_behind"] == []
    assert s3.keys(bucket) == {}
    uploads = s3.client().list_multipart_uploads(Bucket=bucket)
    assert uploads.get("Uploads", []) == []
