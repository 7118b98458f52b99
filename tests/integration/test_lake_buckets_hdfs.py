"""A bucket alone in HDFS: the rows of each story, and of no other."""

from pathlib import Path

import pytest

from pipeline.values import SplitLimits
from tests.support.lake.bucket import Bucket
from tests.support.lake.cluster import address_of, hdfs_settings
from tests.support.lake.reading import check_rows
from tests.support.lake.stories import an_unclean_election, tell_all
from tests.support.stores.hdfs import Hdfs

TINY = SplitLimits(target_bytes=700)


@pytest.mark.slow
def test_an_unclean_election_gives_its_rows_out_of_hdfs(tmp_path: Path, hdfs: Hdfs) -> None:
    with Bucket(tmp_path / "lake", address_of(hdfs_settings(hdfs))) as bucket:
        an_unclean_election(bucket.partition())
        check_rows(bucket, TINY)


@pytest.mark.long(seconds=100)
def test_all_stories_give_their_rows_out_of_hdfs(tmp_path: Path, hdfs: Hdfs) -> None:
    with Bucket(tmp_path / "lake", address_of(hdfs_settings(hdfs))) as bucket:
        check_rows(tell_all(bucket), TINY)
