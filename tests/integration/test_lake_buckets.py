"""A bucket alone, brokers gone: each story of a partition gives its rows once, and no others."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from kafka_protocol.types import TopicPartition
from pipeline.errors import PipelineError
from pipeline.opening import open_log
from pipeline.values import Isolation, OffsetRange, SplitLimits, StoreAddress, Where
from tests.support.lake.bucket import Bucket
from tests.support.lake.cluster import address_of, hdfs_settings
from tests.support.lake.reading import rows_of_log, whole_ranges
from tests.support.lake.stories import STORIES, tell_all
from tests.support.stores.hdfs import Hdfs
from tests.support.stores.s3 import CREDENTIALS, S3Endpoint
from tests.support.stores.s3_tier import S3Tier

TINY = SplitLimits(target_bytes=700)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with Bucket(tmp_path_factory.mktemp("bucket") / "lake") as bucket:
        yield tell_all(bucket)


def where(bucket: Bucket, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> Where:
    starts = {each.id.topic_partition: each.log_start for each in bucket.partitions}
    return Where(store=bucket.address, isolation=isolation, log_starts=starts)


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("limits", [SplitLimits(), TINY], ids=["whole", "tiny"])
@pytest.mark.parametrize("story", STORIES)
def test_a_story_gives_its_rows(
    told: Bucket, story: str, limits: SplitLimits, isolation: Isolation
) -> None:
    [orders] = [each for each in told.partitions if each.id.topic == story]
    rows = rows_of_log(where(told, isolation), story, limits=limits)
    assert rows == orders.rows(isolation, alone=True)


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("story", STORIES)
def test_any_range_gives_its_rows(told: Bucket, story: str, isolation: Isolation) -> None:
    [orders] = [each for each in told.partitions if each.id.topic == story]
    dice, partition = Random(story), TopicPartition(story, 0)
    with closing(open_log(where(told, isolation))) as log:
        whole = whole_ranges(log, [story])[partition]
    assert whole.start == orders.remote(alone=True).start
    rows = orders.rows(isolation, alone=True)
    for _ in range(10):
        start = dice.randint(whole.start, whole.end)
        end = dice.randint(start, whole.end)
        asked = {partition: OffsetRange(start, end)}
        found = rows_of_log(where(told, isolation), ranges=asked, limits=TINY)
        assert found == [row for row in rows if start <= row.offset < end]


def test_a_committed_reader_ends_before_what_is_undecided(told: Bucket) -> None:
    [orders] = [each for each in told.partitions if each.id.topic == "transactions"]
    with closing(open_log(where(told, Isolation.READ_COMMITTED))) as log:
        ends = log.latest(log.partitions(["transactions"]))
    assert list(ends.values()) == [orders.stable_end(alone=True)]


def test_two_lives_of_a_topic_are_told_apart_by_id_alone(tmp_path: Path) -> None:
    with Bucket(tmp_path / "lake") as bucket:
        old = bucket.partition("orders", life=0).batches(2).roll().copy()
        new = bucket.partition("orders", life=1).batches(3).roll().copy()
        with pytest.raises(PipelineError, match=r"topicId|topic_id") as refused:
            rows_of_log(Where(store=bucket.address), "orders")
        assert "\n" not in str(refused.value)
        for life in (old, new):
            asked = Where(store=bucket.address, topic_ids={"orders": life.id.topic_id})
            assert rows_of_log(asked, "orders") == life.rows(alone=True)


@pytest.mark.slow
def test_stories_are_the_same_in_s3(
    tmp_path: Path, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    check_elsewhere(tmp_path, address_of(S3Tier(s3, s3.url).settings()))


@pytest.mark.slow
def test_stories_are_the_same_in_hdfs(tmp_path: Path, hdfs: Hdfs) -> None:
    check_elsewhere(tmp_path, address_of(hdfs_settings(hdfs)))


def check_elsewhere(tmp_path: Path, address: StoreAddress) -> None:
    with Bucket(tmp_path / "lake", address) as bucket:
        tell_all(bucket)
        for isolation in Isolation:
            rows = rows_of_log(where(bucket, isolation), *STORIES, limits=TINY)
            expected = bucket.rows(isolation, alone=True)
            assert sorted(rows) == sorted(expected)
