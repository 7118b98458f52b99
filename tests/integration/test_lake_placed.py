"""A generated bucket behind a broker: clients and readers agree on the rows of each story."""

from collections.abc import Iterator

import pytest

from pipeline.values import Isolation, SplitLimits
from tests.support.brokers.process import BrokerProcess
from tests.support.lake.bucket import Bucket
from tests.support.lake.cluster import where
from tests.support.lake.consumer import rows_of_consumer
from tests.support.lake.placed import placed
from tests.support.lake.reading import rows_of_log
from tests.support.lake.stories import STORIES

pytestmark = [pytest.mark.smoke, pytest.mark.slow, pytest.mark.lasts(seconds=20)]
TINY = SplitLimits(target_bytes=700)


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Bucket]]:
    with placed(tmp_path_factory.mktemp("placed"), STORIES) as made:
        yield made


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("story", STORIES)
def test_clients_readers_and_the_bucket_agree_on_the_rows(
    stand: tuple[BrokerProcess, Bucket], story: str, isolation: Isolation
) -> None:
    broker, bucket = stand
    [orders] = [each for each in bucket.partitions if each.id.topic == story]
    committed = isolation is Isolation.READ_COMMITTED
    rows = list(rows_of_consumer(broker.bootstrap, story, committed=committed))
    if not committed:
        assert [row for row in rows if row.offset in orders.remote()] == orders.rows()
    assert rows_of_log(where(broker, isolation=isolation), story, limits=TINY) == rows != []
