"""A bucket alone in S3: the rows of each story, and of no other."""

from pathlib import Path

import pytest

from pipeline.values import SplitLimits
from tests.support.lake.bucket import Bucket
from tests.support.lake.cluster import address_of
from tests.support.lake.reading import check_rows
from tests.support.lake.stories import tell_all
from tests.support.stores.s3 import CREDENTIALS, S3Endpoint
from tests.support.stores.s3_tier import S3Tier


@pytest.mark.slow
def test_all_stories_give_their_rows_out_of_s3(
    tmp_path: Path, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with Bucket(tmp_path / "lake", address_of(S3Tier(s3, s3.url).settings())) as bucket:
        check_rows(tell_all(bucket), SplitLimits(target_bytes=700))
