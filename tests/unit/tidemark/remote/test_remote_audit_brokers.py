"""What an audit says of each broker of a cluster."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from kafka_protocol.types import TopicIdPartition
from pipeline.cluster.cluster import Cluster, Topic
from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from tidemark.remote.audit_brokers import NOBODY, Led, broker_audits, leader_of
from tidemark.remote.audit_view import print_brokers

TIDES, OLD = b"T" * 16, b"O" * 16
CLUSTER = Cluster(
    "a-cluster",
    {2: ("h12", 9092), 1: ("h11", 9092)},
    {"tides": Topic("tides", TIDES, {0: 1, 1: 2, 2: -1})},
)
LED = {1: Led(2, 7, 5_000_000, 1), NOBODY: Led(1, 1, 2_000_000, 0)}


@pytest.fixture
def storage(tmp_path: Path) -> LocalFsRemoteStorageManager:
    storage = LocalFsRemoteStorageManager()
    storage.configure({"dir": str(tmp_path)})
    return storage


def shown(storage: RemoteStorageManager, led: dict[int, Led] = LED) -> list[str]:
    text = io.StringIO()
    print_brokers(Console(file=text, width=200), broker_audits(CLUSTER, led, storage))
    return text.getvalue().splitlines()


def test_each_broker_has_a_line_also_one_that_leads_nothing(
    storage: LocalFsRemoteStorageManager,
) -> None:
    storage.write_claim("a-cluster", 1, 17)
    storage.write_claim("another", 2, 18)
    assert shown(storage) == [
        "broker 1 (h11:9092) leads 2 partitions: 7 finished segments, 4.77 MiB, 1 finding;"
        " claim 17",
        "broker 2 (h12:9092) leads 0 partitions: 0 finished segments, 0 B, 0 findings;"
        " it has no claim in this store",
        "no broker leads 1 partition: 1 finished segment, 1.91 MiB, 0 findings",
    ]


def test_deleted_topics_of_which_nothing_is_left_have_no_line(
    storage: LocalFsRemoteStorageManager,
) -> None:
    assert len(shown(storage, {NOBODY: Led(5, 0, 0, 0)})) == 2
    assert len(shown(storage, {NOBODY: Led(5, 0, 0, 1)})) == 3


def test_a_claim_that_cannot_be_read_does_not_end_the_audit(
    storage: LocalFsRemoteStorageManager, tmp_path: Path
) -> None:
    storage.write_claim("a-cluster", 1, 17)
    (claim,) = (path for path in tmp_path.rglob("*") if path.is_file())
    claim.write_bytes(b"no claim")
    assert "; its claim cannot be read: " in shown(storage)[0]


def test_a_leader_that_is_no_broker_any_more_is_named(
    storage: LocalFsRemoteStorageManager,
) -> None:
    assert shown(storage, {9: Led(1, 0, 0, 0)})[2].startswith("broker 9 (not there) leads 1 part")


@pytest.mark.parametrize(
    ("topic_id", "partition", "name", "leader"),
    [
        (TIDES, 0, "tides", 1),
        (TIDES, 1, "tides", 2),
        (TIDES, 2, "tides", NOBODY),
        (OLD, 0, "tides", NOBODY),
        (OLD, 0, "ebbs", NOBODY),
    ],
    ids=["one", "another", "without a leader", "of an older topic", "deleted"],
)
def test_the_leader_is_that_of_the_topic_id(
    topic_id: bytes, partition: int, name: str, leader: int
) -> None:
    assert leader_of(CLUSTER, TopicIdPartition(topic_id, partition, name)) == leader
