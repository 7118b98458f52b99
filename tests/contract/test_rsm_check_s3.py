"""`tidemark rsm check` on a real S3 endpoint: what it finds, and an empty bucket after it."""

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from rsm_plugins.contract.failing import FailurePromises
from rsm_plugins.contract.repeating import RepeatPromises
from tests.support.stores.s3 import CREDENTIALS

if TYPE_CHECKING:
    from tests.support.stores.s3 import S3Endpoint

PLUGIN = "rsm_plugins.s3:S3RemoteStorageManager"
NEED_OTHER_STORES = {name for name in vars(RepeatPromises) if name.startswith("test_")} | {
    FailurePromises.test_a_store_that_refuses_to_write_fails_the_copy.__name__
}


def report_of(s3: "S3Endpoint", bucket: str, *more: str) -> Any:
    settings = {"bucket": bucket, "region": "us-east-1", "endpoint.url": s3.url}
    options = [word for key, value in settings.items() for word in ("--config", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "tidemark.cli", "rsm", "check", PLUGIN, "--json", *options, *more],
        check=False, capture_output=True, text=True, timeout=280, env=os.environ | CREDENTIALS,
    )  # fmt: skip
    assert done.stdout, done.stderr
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def not_kept(report: Any) -> dict[str, str]:
    """Their verdicts and why, without those that need stores which are not given here."""
    return {
        one["name"]: f"{one['verdict']}: {one['reason']}"
        for one in report["promises"]
        if one["verdict"] != "kept" and one["name"] not in NEED_OTHER_STORES
    }


def is_empty(s3: "S3Endpoint", bucket: str) -> bool:
    uploads = s3.client().list_multipart_uploads(Bucket=bucket)
    return s3.keys(bucket) == {} and uploads.get("Uploads", []) == []


@pytest.mark.long(seconds=35)
@pytest.mark.slow
def test_promises_about_small_segments_are_kept_on_s3(s3: "S3Endpoint") -> None:
    bucket = s3.new_bucket()
    report = report_of(s3, bucket, "--large-segment-bytes", str(1 << 20), "--no-speed")
    assert all("unreachable" in name for name in not_kept(report))
    assert report["left_behind"] == []
    assert is_empty(s3, bucket)


@pytest.mark.slow
@pytest.mark.long(seconds=60)
def test_every_promise_is_kept_on_s3_and_the_bucket_is_empty_after_it(s3: "S3Endpoint") -> None:
    bucket = s3.new_bucket()
    report = report_of(s3, bucket, "--unreachable", "endpoint.url=http://127.0.0.1:9")
    assert not_kept(report) == {}
    assert 0 < report["speed"]["first_byte"]["p50_ms"] <= report["speed"]["range_1mib"]["p95_ms"]
    assert report["left_behind"] == []
    assert is_empty(s3, bucket)
