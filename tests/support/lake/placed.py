"""A generated bucket behind a real broker, so that clients can say what is in it.

A broker makes the topics and stops. Then the last leaders' logs take the place of its own, without
the segments that are copied; the generated records go to its metadata topic; and it starts again,
as after an upgrade.
"""

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from kafka_protocol.files import epoch_checkpoint, offset_checkpoint
from kafka_protocol.files.meta_properties import parse_partition_metadata
from kafka_protocol.files.offset_checkpoint import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import TopicPartition
from local_log.checked_files import SIDECAR
from local_log.config import LogConfig
from local_log.file_names import PARTITION_METADATA
from local_log.log.partition_log import PartitionLog
from local_log.recovery.survey import OpenRequest
from rlmm import records
from rlmm.topic_based.topic_port import metadata_partition_for
from runtime.disk import Disk
from tests.support.brokers.process import BrokerProcess, until
from tests.support.lake.bucket import Bucket
from tests.support.lake.cluster import Filling, make_topic, store_of, tiered_cluster
from tests.support.lake.partition import LakePartition
from tests.support.lake.replica import NOW_MS
from tests.support.lake.stories import Story

METADATA_TOPIC = "__remote_log_metadata"
_PARTITIONS = 3
_CHAIN = "leader-epoch-checkpoint"


@contextmanager
def placed(directory: Path, stories: Mapping[str, Story]) -> Iterator[tuple[BrokerProcess, Bucket]]:
    """A running broker with a topic for each story, and the bucket that it serves."""
    with tiered_cluster(directory / "broker") as broker:
        for topic in stories:
            make_topic(broker, topic, Filling(partitions=1))
        names = [broker.partition_directory(topic) for topic in stories]
        names += [broker.partition_directory(METADATA_TOPIC, n) for n in range(_PARTITIONS)]
        until(lambda: all((each / PARTITION_METADATA).exists() for each in names), "topics")
        broker.terminate()
        later = int(time.time() * 1_000)  # than that of the broker's own tier, which has written
        with Bucket(directory / "lake", store_of(broker), incarnation=later) as bucket:
            for topic, story in stories.items():
                story(bucket.partition(topic, topic_id=_topic_id(broker, topic)))
            ends = _write_records(broker, bucket)
            bucket.close_logs()
            for each in bucket.partitions:
                _place(broker, each)
            _write_checkpoints(broker, bucket.partitions, ends)
            broker.start()
            until(lambda: _is_validated(broker), "the tier has validated all partitions")
            yield broker, bucket


def _is_validated(broker: BrokerProcess) -> bool:
    """Whether health is green: offline ones have their leader epoch, the tier all its facts."""
    health = json.loads(broker.http("/health")[1])
    return not health["reasons"] and not health["notes"]


def _topic_id(broker: BrokerProcess, topic: str) -> bytes:
    path = broker.partition_directory(topic) / PARTITION_METADATA
    return parse_partition_metadata(path.read_bytes())


def _write_records(broker: BrokerProcess, bucket: Bucket) -> dict[TopicPartition, int]:
    """Append all records where the broker's tier will look for them; gives the new log ends."""
    ends: dict[TopicPartition, int] = {}
    for number in range(_PARTITIONS):
        place = TopicPartition(METADATA_TOPIC, number)
        log = PartitionLog.open(
            OpenRequest(
                place, broker.partition_directory(*place), LogConfig(), NOW_MS, is_clean=True
            ),
            topic_id=_topic_id(broker, METADATA_TOPIC),
            disk=Disk(),
        )
        for event in bucket.events:
            if metadata_partition_for(event.topic_id_partition, _PARTITIONS) == number:
                batch = build_batch([(NOW_MS, None, records.encode(event), [])])
                log.append_as_leader(
                    batch, leader_epoch=log.epochs.latest_epoch or 0, now_ms=NOW_MS
                )
        ends[place] = log.log_end_offset
        log.close()
    return ends


def _place(broker: BrokerProcess, partition: LakePartition) -> None:
    """Put the last leader's log where the broker has its own, which is empty."""
    own, new = broker.partition_directory(partition.id.topic), partition.leader.directory
    kept = (own / PARTITION_METADATA).read_bytes()
    chain = epoch_checkpoint.dump(partition.chain)
    shutil.rmtree(own)
    shutil.copytree(new, own)
    (own / SIDECAR).unlink(missing_ok=True)
    (own / PARTITION_METADATA).write_bytes(kept)
    (own / _CHAIN).write_bytes(chain)
    bases = sorted(int(path.stem) for path in own.glob("*.log"))
    remote_end = partition.remote().stop
    for base, following in pairwise(bases):
        if following <= remote_end:
            for path in own.glob(f"{base:020d}.*"):
                if path.suffix != ".snapshot":
                    path.unlink()


def _write_checkpoints(
    broker: BrokerProcess, partitions: Iterable[LakePartition], ends: Mapping[TopicPartition, int]
) -> None:
    starts = {each.id.topic_partition: each.log_start for each in partitions}
    ends = dict(ends) | {each.id.topic_partition: each.end for each in partitions}
    for name, new in ((HIGH_WATERMARKS, ends), (RECOVERY_POINTS, ends), (LOG_STARTS, starts)):
        path = broker.log_directory / name
        known = offset_checkpoint.parse(path.read_bytes()) if path.exists() else {}
        path.write_bytes(offset_checkpoint.dump(known | dict(new)))
    (broker.log_directory / SIDECAR).unlink(missing_ok=True)
