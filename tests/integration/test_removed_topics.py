"""Real brokers delete tiered topics: with kills, and with a metadata log of an earlier time."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from broker.config.broker_config import BrokerConfig
from metadata_topic.image.image import MetadataImage
from runtime.disk import Disk
from tests.support.brokers.clients import produce
from tests.support.brokers.metadata_copies import copy_of_metadata, put_back
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import TIERED, create, delete_topic, tiered_away, values
from tidemark.node_files.loading import load
from tidemark.node_files.offline_topics import read_image

MakeBroker = Callable[..., BrokerProcess]
RECORDS = values(1_200)


def image(broker: BrokerProcess) -> MetadataImage:
    """What a broker that is started now would find."""
    config: BrokerConfig = load(broker.config_file, (), list_without_effect=False)
    return read_image(config, Disk())


def objects(broker: BrokerProcess) -> list[Path]:
    store = broker.remote_directory
    return [
        path
        for path in broker.remote_paths()
        if path.is_file() and path.relative_to(store).parts[0] != "claims"
    ]


def fill(broker: BrokerProcess) -> None:
    create(broker, "tides", **TIERED)
    produce(broker, "tides", RECORDS)
    tiered_away(broker, "tides")


def unhealthy(broker: BrokerProcess) -> str:
    """What health says of the tier's removed topics, "" where nothing is unhealthy."""
    found = re.search(r"topic tides \(id .*", broker.http("/health")[1])
    return found[0] if found else ""


def forget(broker: BrokerProcess, *arguments: str) -> tuple[int, str]:
    done = broker.command("remote", "forget", *arguments, "--bootstrap-server", broker.bootstrap)
    return done.returncode, done.stdout + done.stderr


def tiered(make_broker: MakeBroker, grace_ms: int) -> BrokerProcess:
    return make_broker(
        tiered=True,
        settings={
            "log.segment.bytes": "1048576",
            "tidemark.remote.delete.grace.ms": str(grace_ms),
            "tidemark.remote.copy.max.ms": "2000",
        },
    )


def test_a_topic_deleted_right_before_a_kill_leaves_the_store_and_the_list(
    make_broker: MakeBroker,
) -> None:
    broker = tiered(make_broker, grace_ms=500)
    broker.start()
    fill(broker)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["tides"])["tides"].result(30)
    broker.kill()
    assert len(image(broker).removed_tiered_topics) == 1
    broker.start()
    until(lambda: not objects(broker), "the store is empty")
    until(lambda: not image(broker).removed_tiered_topics, "the id has left the list")
    assert unhealthy(broker) == ""


def test_metadata_older_than_a_removal_is_unhealthy_until_deleted_again(
    make_broker: MakeBroker,
) -> None:
    broker = tiered(make_broker, grace_ms=4_000)
    broker.start()
    fill(broker)
    assert broker.terminate() == 0
    copy = copy_of_metadata(broker, "before-removal")
    broker.start()
    delete_topic(broker, "tides")
    until(lambda: "DELETE_PARTITION_MARKED of tides" in broker.log_text(), "it is marked")
    broker.kill()
    before = sorted(objects(broker))
    put_back(broker, copy)
    broker.start()
    until(lambda: "was being deleted, and exists" in unhealthy(broker), "health names it")
    assert "DELETE_PARTITION_STARTED of tides" not in broker.log_text()
    assert sorted(objects(broker)) == before
    delete_topic(broker, "tides")
    until(lambda: not objects(broker), "the store is empty")
    until(lambda: unhealthy(broker) == "", "health is green again")


def test_put_back_with_its_directory_the_partition_is_named_as_marked(
    make_broker: MakeBroker,
) -> None:
    broker = tiered(make_broker, grace_ms=60_000)
    broker.start()
    fill(broker)
    assert broker.terminate() == 0
    copy = copy_of_metadata(broker, "before-removal")
    log = broker.directory / "log-before-removal"
    shutil.copytree(broker.partition_directory("tides"), log)
    broker.start()
    delete_topic(broker, "tides")
    until(lambda: "DELETE_PARTITION_MARKED of tides" in broker.log_text(), "it is marked")
    broker.kill()
    put_back(broker, copy)
    shutil.rmtree(broker.partition_directory("tides"), ignore_errors=True)
    shutil.copytree(log, broker.partition_directory("tides"))
    before = sorted(objects(broker))
    broker.start()
    named = "tides-0: this topic id is marked as removed"
    until(lambda: named in broker.http("/health")[1], "health names the mark")
    assert "leader epoch too low" not in broker.http("/health")[1]
    assert sorted(objects(broker)) == before
    delete_topic(broker, "tides")
    until(lambda: named not in broker.http("/health")[1], "the partition is gone")


@pytest.mark.long(seconds=18)
def test_put_back_to_before_the_creation_it_is_kept_until_forgotten(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = tiered(make_broker, grace_ms=8_000)
    broker.start()
    assert broker.terminate() == 0
    copy = copy_of_metadata(broker, "before-creation")
    broker.start()
    fill(broker)
    topic_id = re.search(r"tides-(\S{22})", str(objects(broker)[0]))
    assert topic_id is not None
    assert "what exists is not forgotten" in forget(broker, topic_id[1], "--yes")[1]
    assert broker.terminate() == 0
    before = sorted(objects(broker))
    put_back(broker, copy)
    broker.start()
    reason = until(lambda: unhealthy(broker), "health names it")
    assert f"tidemark remote forget {topic_id[1]}" in reason
    assert sorted(objects(broker)) == before

    undo = tmp_path / "undo.json"
    wanted = (topic_id[1], "--undo-file", str(undo))
    code, said = forget(broker, *wanted)  # nobody answers the question
    assert code != 0
    assert not undo.exists()
    code, said = forget(broker, *wanted, "--yes")
    assert code == 0, said
    assert f"{len(before) // 3} segments" in said
    kept = json.loads(undo.read_text())
    assert len(kept["segments"]) == len(before) // 3
    code, said = forget(broker, *wanted, "--yes")
    assert code == 1
    assert "is there already" in said
    code, said = forget(broker, topic_id[1], "--take-back")
    assert code == 0, said
    assert "kept, as far as it is still there" in said
    assert image(broker).removed_tiered_topics == {}
    undo.unlink()
    assert forget(broker, *wanted, "--yes")[0] == 0
    until(lambda: not objects(broker), "the store is empty")
    until(lambda: unhealthy(broker) == "", "health is green again")
    until(lambda: not image(broker).removed_tiered_topics, "the id has left the list")
    assert forget(broker, *wanted, "--yes")[0] == 1


@pytest.mark.parametrize("nonsense", ["tides", "AAAAAAAAAAAAAAAAAAAAAA", "x" * 22])
def test_what_is_no_unknown_topic_id_is_not_forgotten(
    shared_tiered_broker: BrokerProcess, nonsense: str
) -> None:
    code, said = forget(shared_tiered_broker, nonsense, "--yes")
    assert code == 1
    assert "topic id" in said
    assert "Traceback" not in said
