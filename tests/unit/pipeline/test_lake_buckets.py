"""A bucket alone, brokers gone: each story of a partition gives its rows once, and no others."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from kafka_protocol.types import TopicPartition
from pipeline.errors import PipelineError
from pipeline.opening import open_log
from pipeline.values import Isolation, OffsetRange, SplitLimits, Where
from tests.support.lake.bucket import Bucket
from tests.support.lake.reading import rows_of_log, where_alone, whole_ranges
from tests.support.lake.stories import STORIES, tell_all

TINY = SplitLimits(target_bytes=700)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with Bucket(tmp_path_factory.mktemp("bucket") / "lake") as bucket:
        yield tell_all(bucket)


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("limits", [SplitLimits(), TINY], ids=["whole", "tiny"])
@pytest.mark.parametrize("story", STORIES)
def test_a_story_gives_its_rows(
    told: Bucket, story: str, limits: SplitLimits, isolation: Isolation
) -> None:
    [orders] = [each for each in told.partitions if each.id.topic == story]
    rows = rows_of_log(where_alone(told, isolation), story, limits=limits)
    assert rows == orders.rows(isolation, alone=True)


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("story", STORIES)
def test_any_range_gives_its_rows(told: Bucket, story: str, isolation: Isolation) -> None:
    [orders] = [each for each in told.partitions if each.id.topic == story]
    rng, partition = Random(story), TopicPartition(story, 0)
    with closing(open_log(where_alone(told, isolation))) as log:
        whole = whole_ranges(log, [story])[partition]
    assert whole.start == orders.remote(alone=True).start
    rows = orders.rows(isolation, alone=True)
    for _ in range(10):
        start = rng.randint(whole.start, whole.end)
        end = rng.randint(start, whole.end)
        asked = {partition: OffsetRange(start, end)}
        found = rows_of_log(where_alone(told, isolation), ranges=asked, limits=TINY)
        assert found == [row for row in rows if start <= row.offset < end]


def test_a_committed_reader_ends_before_what_is_undecided(told: Bucket) -> None:
    [orders] = [each for each in told.partitions if each.id.topic == "transactions"]
    with closing(open_log(where_alone(told, Isolation.READ_COMMITTED))) as log:
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
