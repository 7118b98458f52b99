"""A generated bucket behind a broker: clients and readers agree on the rows of each story."""

from collections.abc import Iterator

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.lake.bucket import Bucket
from tests.support.lake.consumer import rows_of_consumer
from tests.support.lake.placed import placed
from tests.support.lake.stories import STORIES

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=20)]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Bucket]]:
    with placed(tmp_path_factory.mktemp("placed"), STORIES) as made:
        yield made


@pytest.mark.parametrize("story", STORIES)
def test_a_consumer_gets_the_rows_that_the_bucket_expects(
    stand: tuple[BrokerProcess, Bucket], story: str
) -> None:
    broker, bucket = stand
    [orders] = [each for each in bucket.partitions if each.id.topic == story]
    remote = orders.remote()
    rows = list(rows_of_consumer(broker.bootstrap, story))
    assert [row for row in rows if row.offset in remote] == orders.rows()
