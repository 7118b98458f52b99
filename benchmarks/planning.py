"""How long it takes to plan a partition of very many segments, from an empty process and again.

    python -m benchmarks.planning [SEGMENTS [DELETED]]

A broker gets a topic whose metadata has so many live segments, and others that were deleted. No
object of them is in a store, since a plan reads none. A separate process plans the whole log three
times.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kafka_client.blocking import BlockingClient
from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.types import EpochEntry, TopicIdPartition
from pipeline.cluster.cluster import look, offsets
from rlmm.api import Fence, SegmentUpdate
from rlmm.events import MetadataEvent, SegmentAdded, SegmentUpdated, Stamp
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from tests.support.brokers.process import until
from tests.support.lake import placed
from tests.support.lake.bucket import Bucket
from tests.support.lake.cluster import Filling, make_topic, store_of, tiered_cluster

SPAN = 1_000
"""Offsets of a segment."""
TOPIC = "long"
PLANNER = """
import json, resource, sys, time
began, used = time.perf_counter(), 0.0
from pipeline.opening import open_log
from pipeline.values import ClusterAddress, OffsetRange, SplitLimits, Where
log = open_log(Where(cluster=ClusterAddress(sys.argv[1])))
(partition,) = log.partitions([sys.argv[2]])
took, cpu = [], []
for _ in range(3):
    ends, starts = log.latest([partition]), log.earliest([partition])
    plan = log.plan({partition: OffsetRange(starts[partition], ends[partition])}, SplitLimits())
    now, all_used = time.perf_counter(), time.process_time()
    took.append(now - began)
    cpu.append(all_used - used)
    began, used = now, all_used
kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
facts = plan.facts
print(json.dumps({"seconds": took, "rss_mb": kib * 1024 / 1e6, "splits": len(plan.splits),
    "segments": facts.segments_read, "cpu_seconds": cpu}))
"""


def events_of(partition: TopicIdPartition, deleted: int, live: int) -> Iterator[MetadataEvent]:
    """Every segment is begun and finished; the first ones are deleted meanwhile."""
    stamp = Stamp(Fence(0, 1_700_000_000_000), 5, 0)

    def update(number: int, state: SegmentState) -> SegmentUpdated:
        named = RemoteLogSegmentId(partition, number.to_bytes(16, "big"))
        return SegmentUpdated(SegmentUpdate(named, state, 1_700_000_000_000 + number, 1), stamp)

    for number in range(deleted + live):
        first = number * SPAN
        yield SegmentAdded(
            RemoteLogSegmentMetadata(
                id=RemoteLogSegmentId(partition, number.to_bytes(16, "big")),
                start_offset=first,
                end_offset=first + SPAN - 1,
                max_timestamp_ms=1_700_000_000_000 + number,
                broker_id=1,
                event_timestamp_ms=1_700_000_000_000 + number,
                segment_size_bytes=100 << 20,
                leader_epochs=(EpochEntry(0, first),),
                txn_index_empty=True,
            ),
            stamp,
        )
        yield update(number, SegmentState.COPY_SEGMENT_FINISHED)
        late = number - 1_000
        if 0 <= late < deleted:
            yield update(late, SegmentState.DELETE_SEGMENT_STARTED)
            yield update(late, SegmentState.DELETE_SEGMENT_FINISHED)


def is_validated(client: BlockingClient) -> bool:
    """Before that, brokers answer no question about epochs: it is no part of a plan."""
    cluster = look(client)
    found = offsets(client, cluster, cluster.topic(TOPIC), 0)
    return found is not None and found.highest_tiered is not None


def main(live: int, deleted: int) -> None:
    with tempfile.TemporaryDirectory() as path, tiered_cluster(Path(path) / "broker") as broker:
        make_topic(broker, TOPIC, Filling(partitions=1))
        names = [broker.partition_directory(TOPIC)]
        names += [broker.partition_directory(placed.METADATA_TOPIC, n) for n in range(3)]
        until(lambda: all((each / "partition.metadata").exists() for each in names), "topics")
        broker.terminate()
        with Bucket(Path(path) / "lake", store_of(broker)) as bucket:
            end = (deleted + live) * SPAN
            topic_id = placed._topic_id(broker, TOPIC)
            long = bucket.partition(TOPIC, topic_id=topic_id, log_start=end)
            long.batches(3)
            bucket.events += events_of(long.id, deleted, live)
            print(f"{len(bucket.events):,} records", flush=True)
            ends = placed._write_records(broker, bucket)
            bucket.close_logs()
            placed._place(broker, long)
            chain = broker.partition_directory(TOPIC) / placed._CHAIN
            chain.write_bytes(epoch_checkpoint.dump([EpochEntry(0, deleted * SPAN)]))
            long.log_start = deleted * SPAN
            placed._write_checkpoints(broker, [long], ends)
            broker.start()
            began = time.perf_counter()
            with BlockingClient(broker.bootstrap) as client:
                until(lambda: is_validated(client), "the tier has validated it", deadline_s=600)
            print(f"validated after {time.perf_counter() - began:.1f} s", flush=True)
            command = [sys.executable, "-c", PLANNER, broker.bootstrap, TOPIC]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            print(json.dumps(found, indent=1))


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*(given + [100_000, 50_000][len(given) :]))
