"""A stream that is killed and starts from its checkpoint, again and again, loses no record.

Nor does it write one twice. Meanwhile records arrive, segments are copied, and local ones go.
"""

import os
from pathlib import Path
from random import Random

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.lake.cluster import Filling, fill, produce_more, tiered_cluster
from tests.support.lake.consumer import consumer_digests
from tests.support.rounds import rounds
from tests.support.spark.killed_stream import MOMENTS, KilledStream, kill_workers
from tests.support.spark.parquet_sink import sink_digests
from tests.support.spark.session import why_no_spark

pytestmark = [
    pytest.mark.slow,
    pytest.mark.lasts(seconds=60),
    pytest.mark.timeout(900),
    pytest.mark.skipif(why_no_spark() is not None, reason=str(why_no_spark())),
]
FILLING = Filling(partitions=2, epochs=1, records=2_000, deleted=0)
EACH_BATCH = 300
"""Records of a partition in a micro-batch, at most."""


@pytest.mark.long(seconds=70)
def test_a_killed_stream_continues_without_loss_and_without_doubles(tmp_path: Path) -> None:
    check(tmp_path, kills=2, most=1)


@pytest.mark.long(seconds=500)
@pytest.mark.timeout(1_800)
def test_a_stream_killed_twenty_times(tmp_path: Path) -> None:
    check(tmp_path, kills=rounds("TIDEMARK_STREAM_KILLS", quick=20, full=20), most=3)


def check(tmp_path: Path, *, kills: int, most: int) -> None:
    """Kill the driver and a Python worker by turns, at moments that the rng chooses.

    Args:
        kills: how many.
        most: batches that come to their moment before a kill.
    """
    seed = int(os.environ.get("TIDEMARK_STREAM_SEED", Random().randrange(1_000_000)))
    print(f"TIDEMARK_STREAM_SEED={seed}")
    rng = Random(seed)
    with tiered_cluster(tmp_path / "broker") as broker:
        fill(broker, "orders", FILLING)
        stream, written = KilledStream(tmp_path / "stream", options(broker)), FILLING.records
        for kill in range(kills):
            moment, batches = rng.choice(MOMENTS), rng.randint(1, most)
            new = FILLING._replace(records=EACH_BATCH * batches)  # else it waits for them in vain
            with stream.running():
                produce_more(broker, "orders", new, rng)
                written += new.records
                stream.wait_for(moment, stream.count(moment) + batches)
                if kill % 2:
                    kill_workers(stream)
        stream.run_to_end()
        expected = consumer_digests(broker.bootstrap, "orders")
        assert {each.count for each in expected.values()} == {written}
        assert sink_digests(stream.path) == expected


def options(broker: BrokerProcess) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(EACH_BATCH * FILLING.partitions),
        "includeHeaders": "true",
    }
