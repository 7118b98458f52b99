"""A metadata node opens directories of Apache Kafka 4.3.1 and continues where it stopped."""

import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from metadata_topic.controller.brokers import (
    begin_controlled_shutdown,
    fence_broker,
    register_broker,
    unfence_broker,
)
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import MetadataRecord, encode_record
from metadata_topic.quorum.active.activation import activation_records
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.log.batches import Batch, read_batches
from metadata_topic.quorum.node import MetadataNode, NodeIdentity
from metadata_topic.quorum.start.format import METADATA_DIRECTORY, read_bootstrap
from runtime.disk import Disk
from tests.support.samples.metadata import registration_of
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.worlds.one_node import looped, sole_voter

METADATA = Path(__file__).parents[2] / "golden/cluster-metadata"
STATIC = METADATA / "static-quorum"


def node_in(home: Path, *, static: bool = False) -> MetadataNode:
    meta = parse_meta_properties((home / META_PROPERTIES).read_bytes())
    assert meta.directory_id is not None
    return MetadataNode(
        home,
        NodeIdentity(
            node_id=meta.node_id, cluster_id=meta.cluster_id, directory_id=meta.directory_id
        ),
        looped(simulated(clock=ManualClock(1_800_000_000_000))),
        sole_voter(MetadataLogConfig(segment_bytes=40_000), static=static),
    )


@pytest.fixture
def kafka_home(tmp_path: Path) -> Path:
    shutil.copytree(STATIC / METADATA_DIRECTORY, tmp_path / METADATA_DIRECTORY)
    shutil.copytree(STATIC / "log-dir-files", tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("keep_snapshots", [True, False])
async def test_a_single_node_continues_in_the_next_epoch(
    kafka_home: Path, keep_snapshots: bool
) -> None:
    if not keep_snapshots:
        for path in (kafka_home / METADATA_DIRECTORY).glob("*.checkpoint"):
            path.unlink()

    node = node_in(kafka_home, static=True)
    await node.begin()
    assert (node.leader_epoch, node.kraft_version) == (6, 0)
    assert len(node.image.topics_by_name) == 28
    before = node.image.topics_by_name["epochs"].partitions[0]
    assert (before.leader, before.leader_epoch) == (-1, 9)
    mine = replace(registration_of(1), log_dirs=node.image.brokers[1].log_dirs)
    epoch = await node.submit(lambda image: register_broker(image, mine))
    await node.submit(lambda i: unfence_broker(i, broker_id=1, broker_epoch=epoch))
    after = node.image.topics_by_name["epochs"].partitions[0]
    assert (after.leader, after.leader_epoch, after.isr) == (1, 10, (1,))
    await node.snapshot()
    await node.close()
    again = node_in(kafka_home, static=True)
    await again.begin()
    assert again.image.topics_by_id == node.image.topics_by_id
    assert again.image.scram_credentials.keys() == node.image.scram_credentials.keys()


async def test_a_directory_formatted_by_kafkas_tool_starts(tmp_path: Path) -> None:
    source = METADATA / "formatted/standalone-transaction.version-1"
    shutil.copytree(source, tmp_path, dirs_exist_ok=True)
    node = node_in(tmp_path)
    await node.begin()
    assert node.kraft_version == 1
    assert node.image.features["transaction.version"] == 1
    assert ("carol", 1) in node.image.scram_credentials


def test_the_first_records_are_those_kafka_wrote() -> None:
    log = STATIC / METADATA_DIRECTORY / "00000000000000000000.log"
    first = next(batch for batch in read_batches(log.read_bytes()) if batch.records)
    bootstrap = read_bootstrap(STATIC / "log-dir-files", Disk())
    ours = activation_records(bootstrap, min_insync_replicas=1)
    assert [encode_record(r) for r in ours] == [encode_record(r) for r in first.records]


def static_batches() -> list[Batch]:
    logs = sorted((STATIC / METADATA_DIRECTORY).glob("*.log"))
    return [batch for log in logs for batch in read_batches(log.read_bytes())]


def decided_by_kafka(first: str, **fields: int) -> list[tuple[MetadataImage, Batch]]:
    """Images and the batches Kafka wrote next, where a record `first` has these fields."""
    loader, found = ImageLoader(EMPTY_IMAGE), []
    for batch in static_batches():
        image, _ = loader.take()
        for record in batch.records:
            if record.name == first and all(
                getattr(record.value, name) == value for name, value in fields.items()
            ):
                found.append((image, batch))
            loader.add(record)
        loader.end_of_batch(Provenance(batch.header.last_offset, 1, 1))
    return found


def encoded(records: Iterable[MetadataRecord]) -> Counter[bytes]:
    """Records without those of other decisions that Kafka put in the same batch."""
    others = {("NoOpRecord", 0), ("BrokerRegistrationChangeRecord", 3)}
    return Counter(encode_record(r) for r in records if (r.name, r.version) not in others)


def test_a_controlled_shutdown_is_decided_as_kafka_did() -> None:
    cases = decided_by_kafka("BrokerRegistrationChangeRecord", in_controlled_shutdown=1)
    assert len(cases) >= 2
    for image, batch in cases:
        epoch = image.brokers[1].epoch
        ours = begin_controlled_shutdown(image, broker_id=1, broker_epoch=epoch)
        assert encoded(ours.records) == encoded(batch.records)


def test_fencing_a_lost_broker_is_decided_as_kafka_did() -> None:
    cases = decided_by_kafka("BrokerRegistrationChangeRecord", fenced=1)
    assert len(cases) >= 2
    for image, batch in cases:
        ours = fence_broker(image, broker_id=1, broker_epoch=image.brokers[1].epoch)
        assert encoded(ours.records) == encoded(batch.records)


def test_unfencing_after_a_clean_stop_is_decided_as_kafka_did() -> None:
    cases = [
        (image, batch)
        for image, batch in decided_by_kafka("BrokerRegistrationChangeRecord", fenced=-1)
        # After a kill Kafka recovers from the last known leader, which is not ours to do.
        if all(
            p.elr or not p.last_known_elr
            for t in image.topics_by_id.values()
            for p in t.partitions.values()
        )
    ]
    assert len(cases) >= 2
    for image, batch in cases:
        ours = unfence_broker(image, broker_id=1, broker_epoch=image.brokers[1].epoch)
        assert encoded(ours.records) == encoded(batch.records)
