"""`tidemark remote segments` and `audit` against a real broker and stores damaged by hand."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.brokers.clients import produce
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import (
    TIERED,
    create,
    delete_records,
    delete_topic,
    tiered_away,
    values,
)
from tidemark.remote.options import NAMES_A_BROKER

RECORDS = values(1_600)
UNKNOWN_ID = "AAAAAAAAAAAAAAAAAAAAAA"
YOUNG_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
HOUR_S = 3_600


def run(broker: BrokerProcess, *arguments: str) -> tuple[int, str, str]:
    done = broker.command("remote", *arguments, "--bootstrap-server", broker.bootstrap)
    return done.returncode, done.stdout, done.stderr


def audit(broker: BrokerProcess, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON."""
    config = ("--config", str(broker.config_file))
    code, out, err = run(broker, "audit", "--json", *config, *arguments)
    assert out, err
    return code, json.loads(out)


def kinds(found: dict[str, Any]) -> dict[str, int]:
    return {kind: count for kind, count in found["summary"]["findings"].items() if count}


def objects(broker: BrokerProcess, topic: str, suffix: str) -> list[Path]:
    """Of a topic's segments, by offset."""
    return sorted(broker.remote_directory.glob(f"{topic}-*/0/*{suffix}"))


def fill(broker: BrokerProcess, topic: str = "tides") -> None:
    create(broker, topic, **TIERED)
    produce(broker, topic, RECORDS)
    tiered_away(broker, topic)


def make_old(path: Path) -> None:
    then = time.time() - 2 * HOUR_S
    os.utime(path, (then, then))


def leaked(like: Path, segment_id: str) -> Path:
    """An object of a segment that no metadata knows, beside one that it does."""
    path = like.with_name(f"{'7':0>20}-{segment_id}{like.suffix}")
    shutil.copyfile(like, path)
    return path


def test_a_normal_client_may_read_the_metadata_topic(tiered_broker: BrokerProcess) -> None:
    broker = tiered_broker
    fill(broker)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "anybody",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition("__remote_log_metadata", n, 0) for n in range(3)])
        message = until(lambda: consumer.poll(1), "a record of the metadata topic")
        assert message.error() is None
    finally:
        consumer.close()


@pytest.mark.smoke
def test_segments_shows_both_tiers_of_a_topic(tiered_broker: BrokerProcess) -> None:
    broker = tiered_broker
    fill(broker)
    bases = broker.remote_segments("tides")
    code, out, err = run(broker, "segments", "tides")
    assert (code, err) == (0, "")
    assert "tides-0  offsets 0 to 1,599" in out
    assert f"{len(bases)} segments finished" in out
    assert "█" in out
    assert "\x1b" not in out
    code, out, _ = run(broker, "segments", "tides", "--json", "--partition", "0")
    (partition,) = json.loads(out)["partitions"]
    assert [one["start_offset"] for one in partition["segments"]] == bases
    assert {one["state"] for one in partition["segments"]} == {"COPY_SEGMENT_FINISHED"}
    assert {one["on_chain"] for one in partition["segments"]} == {"on chain"}
    assert partition["log_start_offset"] == 0
    assert partition["log_end_offset"] == len(RECORDS)
    last = partition["segments"][-1]["end_offset"]
    assert partition["highest_tiered_offset"] == last
    assert partition["local_log_start_offset"] == last + 1
    assert partition["remote_ranges"] == [[0, last + 1]]
    assert partition["problems"] == []


def test_segments_says_what_it_cannot_show(tiered_broker: BrokerProcess) -> None:
    broker = tiered_broker
    create(broker, "plain")
    create(broker, "tides", **TIERED)
    code, _, err = run(broker, "segments", "tide")
    assert (code, err) == (1, "tidemark: there is no topic 'tide'; did you mean tides?\n")
    code, _, err = run(broker, "segments", "tides", "--partition", "7")
    assert (code, err) == (1, "tidemark: --partition=7: topic tides has 1 partitions\n")
    code, out, _ = run(broker, "segments", "plain")
    assert code == 0
    assert "not tiered" in out
    assert "empty, log end 0" in out
    code, out, _ = run(broker, "segments", "tides")
    assert code == 0
    assert "nothing in the remote tier" in out


def test_segments_survives_restarts_and_their_epochs(tiered_broker: BrokerProcess) -> None:
    broker = tiered_broker
    create(broker, "tides", **TIERED)
    for round_ in range(2):
        produce(broker, "tides", RECORDS)
        tiered_away(broker, "tides")
        if not round_:
            broker.kill()
            broker.start()
    _, out, _ = run(broker, "segments", "tides", "--json")
    (partition,) = json.loads(out)["partitions"]
    epochs = {entry[0] for one in partition["segments"] for entry in one["leader_epochs"]}
    assert len(epochs) > 1
    assert {one["on_chain"] for one in partition["segments"]} == {"on chain"}
    assert partition["problems"] == []


@pytest.mark.parametrize("depth", [pytest.param((), marks=pytest.mark.long), ("--deep",)])
def test_a_healthy_store_gives_no_finding(
    tiered_broker: BrokerProcess, depth: tuple[str, ...]
) -> None:
    broker = tiered_broker
    fill(broker)
    until(lambda: audit(broker)[0] == 0, "copies and deletions are over")
    code, found = audit(broker, *depth)
    assert (code, found["findings"]) == (0, [])
    segments = len(broker.remote_segments("tides"))
    assert found["summary"]["finished_segments"] == segments
    assert found["summary"]["objects"] == 3 * segments
    assert found["summary"]["deep"] is bool(depth)
    logs = sum(path.stat().st_size for path in objects(broker, "tides", ".log"))
    assert (found["summary"]["read_bytes"] >= logs) is bool(depth)
    code, out, _ = run(broker, "audit", "--config", str(broker.config_file))
    assert code == 0
    assert "no findings" in out
    assert "logs were not read" in out


def test_every_damage_is_found_and_only_old_orphans_are_deleted(
    tiered_broker: BrokerProcess,
) -> None:
    broker = tiered_broker
    fill(broker)
    logs = objects(broker, "tides", ".log")
    indexes, manifests = (objects(broker, "tides", suffix) for suffix in (".indexes", ".manifest"))
    orphan, young = leaked(logs[5], UNKNOWN_ID), leaked(logs[5], YOUNG_ID)
    strange = broker.remote_directory / f"other-{YOUNG_ID}" / "0" / orphan.name
    strange.parent.mkdir(parents=True)
    shutil.copyfile(logs[5], strange)
    foreign = broker.remote_directory / "readme.txt"
    foreign.write_text("hello")
    for path in (orphan, strange, foreign):
        make_old(path)
    logs[0].unlink()
    with logs[1].open("r+b") as file:
        file.truncate(1_000)
    with logs[2].open("r+b") as file:
        file.seek(5_000)
        file.write(b"!?")
    with indexes[3].open("r+b") as file:
        file.seek(40)
        file.write(b"!?")
    manifests[4].write_text("{}")

    shallow = {"missing": 1, "short": 1, "corrupt": 2, "orphan": 3, "foreign": 1}
    code, found = audit(broker, "--copy-max-ms", str(HOUR_S * 1_000))
    assert (code, kinds(found)) == (2, shallow)
    code, found = audit(broker, "--deep", "--copy-max-ms", str(HOUR_S * 1_000))
    assert (code, kinds(found)) == (2, shallow | {"corrupt": 3})
    by_kind = {one["kind"]: one for one in found["findings"]}
    assert by_kind["missing"]["keys"] == [str(logs[0].relative_to(broker.remote_directory))]
    assert by_kind["short"]["start_offset"] == int(logs[1].name.split("-")[0])
    assert by_kind["foreign"]["keys"] == ["readme.txt"]
    before = set(broker.remote_directory.rglob("*"))

    code, found = audit(broker, "--delete-orphans", "--yes", "--copy-max-ms", str(HOUR_S * 1_000))
    assert code == 2
    assert [one["segment_id"] for one in found["deletion"]["deleted"]] == [UNKNOWN_ID]
    reasons = sorted(one["reason"] for one in found["deletion"]["kept"])
    assert "younger than the longest copy" in reasons[0]
    assert reasons[1] == "the metadata never knew its partition"
    assert before - set(broker.remote_directory.rglob("*")) == {orphan}
    assert young.exists()
    code, found = audit(broker, "--copy-max-ms", str(HOUR_S * 1_000))
    assert (code, kinds(found)) == (2, shallow | {"orphan": 2})


def test_one_topic_can_be_audited_and_a_misspelt_one_is_named(
    tiered_broker: BrokerProcess,
) -> None:
    broker = tiered_broker
    fill(broker, "tides")
    fill(broker, "ebbs")
    objects(broker, "ebbs", ".log")[0].unlink()
    code, found = audit(broker, "tides")
    assert (code, found["summary"]["partitions"]) == (0, 1)
    assert found["summary"]["objects"] == 3 * len(broker.remote_segments("tides"))
    found = audit(broker, "ebbs")[1]
    assert kinds(found) == {"missing": 1}
    ((node_id, partitions, findings, claim),) = (
        (one["broker"], one["partitions"], one["findings"], one["claim"])
        for one in found["brokers"]
    )
    assert (node_id, partitions, findings) == (1, 1, 1)
    assert claim > 0, "it was taken when the tier started"
    code, _, err = run(broker, "audit", "tide", "--config", str(broker.config_file))
    assert code == 1
    assert err.endswith("did you mean tides?\n")


def test_the_store_of_another_cluster_is_not_repaired(
    tiered_broker: BrokerProcess, make_broker: Callable[..., BrokerProcess]
) -> None:
    broker = tiered_broker
    fill(broker)
    other = make_broker("other", tiered=True, settings={"log.segment.bytes": "1048576"}).start()
    fill(other, "waves")
    for path in broker.remote_directory.rglob("*"):
        make_old(path)
    place = ("--storage-config", f"dir={broker.remote_directory}")
    before = set(broker.remote_directory.rglob("*"))
    code, found = audit(other, *place, "--delete-orphans", "--yes")
    assert code == 1
    assert "is this the store of this cluster?" in found["deletion"]["refused"]
    assert found["deletion"]["deleted"] == []
    assert set(broker.remote_directory.rglob("*")) == before


def test_orphans_are_deleted_on_a_second_word_only(tiered_broker: BrokerProcess) -> None:
    broker = tiered_broker
    fill(broker)
    orphan = leaked(objects(broker, "tides", ".log")[0], UNKNOWN_ID)
    make_old(orphan)
    command = ("audit", "--config", str(broker.config_file), "--delete-orphans")
    code, _, err = run(broker, *command)
    assert code == 1
    assert err.endswith(
        "--delete-orphans needs --yes: look at the orphans that the audit shows without it\n"
    )
    manager = "remote.log.metadata.manager.class.name"
    broker.terminate()
    broker.settings[manager] = "tests.support.tier.least_manager:LeastManager"
    broker.start()
    code, out, _ = run(broker, *command, "--yes")
    assert code == 1
    assert f"nothing is deleted: broker 1 has {manager}=tests.support.tier" in out
    broker.terminate()
    del broker.settings[manager]
    broker.start()
    assert orphan.exists()
    code, out, _ = run(broker, *command, "--yes")
    assert code == 0
    assert out.index("deleting  tides-0 from offset") < out.index("deleted 1 orphan")
    assert "deleted 1 orphan" in out
    assert not orphan.exists()


def test_there_is_no_false_finding_while_the_cluster_works(tiered_broker: BrokerProcess) -> None:
    broker = tiered_broker
    create(broker, "tides", **TIERED)
    create(broker, "gone", **TIERED)
    produce(broker, "gone", RECORDS)
    for round_ in range(4):
        produce(broker, "tides", RECORDS)
        code, found = audit(broker)
        assert (code, found["findings"]) == (0, [])
        if round_ == 1:
            delete_topic(broker, "gone")
        if round_ > 1:
            delete_records(broker, "tides", round_ * 1_000)
        code, found = audit(broker, "--deep")
        assert (code, found["findings"]) == (0, [])


def test_wrong_options_end_with_1_for_2_means_findings(tiered_broker: BrokerProcess) -> None:
    broker = tiered_broker
    for arguments, words in (
        (("audit", "--no-such-option"), "no-such-option"),
        (("audit",), "remote.log.storage.manager.class.name"),
        (("audit", "--storage-class", "no.such:Plugin"), "no.such"),
        (("audit", "--config", "/nowhere/server.properties"), "/nowhere/server.properties"),
        (("segments",), "TOPIC"),
    ):
        code, out, err = run(broker, *arguments)
        assert (code, out) == (1, "")
        assert words in err
    nobody = broker.command("remote", "segments", "tides", "--bootstrap-server", "127.0.0.1:1")
    assert nobody.returncode == 1
    assert nobody.stderr == f"tidemark: 127.0.0.1:1: Connection refused; {NAMES_A_BROKER}\n"
