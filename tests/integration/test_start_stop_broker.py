"""Life and death of a broker process: clean stops, kills, and starts that must be refused."""

import json
import re
from collections.abc import Callable

import pytest

from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.brokers.process import BrokerProcess, until

MakeBroker = Callable[..., BrokerProcess]
RECORDS = [(b"%d" % n, b"x" * 300) for n in range(3_000)]
AS_READ = [(n, key, value) for n, (key, value) in enumerate(RECORDS)]


@pytest.mark.smoke
def test_records_survive_a_clean_stop(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    produce(broker, "kept", RECORDS)
    assert broker.terminate() == 0
    assert (broker.log_directory / ".kafka_cleanshutdown").exists()
    broker.start()
    assert not (broker.log_directory / ".kafka_cleanshutdown").exists()
    assert read_all(broker, "kept") == AS_READ


@pytest.mark.smoke
def test_acknowledged_records_survive_kills(make_broker: MakeBroker) -> None:
    broker = make_broker(settings={"log.segment.bytes": "1048576"}).start()
    for life in range(3):
        produce(broker, "killed", RECORDS)
        broker.kill()
        broker.start()
        low, high = end_offsets(broker, "killed")
        assert (low, high) == (0, len(RECORDS) * (life + 1))
    found = read_all(broker, "killed")
    assert [(key, value) for _, key, value in found] == RECORDS * 3


def test_leader_epochs_rise_by_two_at_each_restart(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    epochs = []
    for _ in range(3):
        produce(broker, "epochs", [(b"k", b"v")])
        broker.kill()
        broker.start()  # what the kill took from the file the batches tell
        text = (broker.partition_directory("epochs") / "leader-epoch-checkpoint").read_text()
        epochs.append(text.split("\n")[2:-1])
    assert epochs == [["0 0"], ["0 0", "2 1"], ["0 0", "2 1", "4 2"]]


def test_a_torn_tail_is_cut(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    produce(broker, "torn", RECORDS)
    broker.kill()
    segment = broker.partition_directory("torn") / f"{0:020d}.log"
    with segment.open("ab") as file:
        file.write(b"\0" * 7 + b"torn in the middle of a batch")
    broker.start()
    assert read_all(broker, "torn") == AS_READ
    produce(broker, "torn", [(b"after", b"the tear")])
    assert end_offsets(broker, "torn") == (0, len(RECORDS) + 1)


def test_several_log_directories_are_all_used(make_broker: MakeBroker) -> None:
    broker = make_broker()
    second = broker.directory / "more-logs"
    broker.settings["log.dirs"] = f"{broker.log_directory},{second}"
    broker.settings["num.partitions"] = "4"
    broker.start()
    for partition in range(4):
        produce(broker, "spread", RECORDS[:10], partition)
    used = [len(list(d.glob("spread-*"))) for d in (broker.log_directory, second)]
    assert used == [2, 2]
    assert broker.terminate() == 0
    broker.start()
    for partition in range(4):
        assert read_all(broker, "spread", partition) == AS_READ[:10]


def test_another_node_id_is_refused_with_both_values(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.format()
    broker.node_id = 7
    ended = broker.start_to_end()
    message = ended.stderr + ended.stdout
    assert ended.returncode == 1
    assert re.search(r"node\.id", message)
    assert "7" in message
    assert "1" in message
    assert "meta.properties" in message
    assert "Traceback" not in message


def test_the_directory_of_another_cluster_is_refused_with_both_ids(make_broker: MakeBroker) -> None:
    broker = make_broker()
    second = broker.directory / "more-logs"
    broker.settings["log.dirs"] = f"{broker.log_directory},{second}"
    assert broker.format("--cluster-id", "AAAAAAAAAAAAAAAAAAAAQQ").returncode == 0
    file = second / "meta.properties"
    file.write_text(file.read_text().replace("AAAAAAAAAAAAAAAAAAAAQQ", "BBBBBBBBBBBBBBBBBBBBBQ"))
    before = file.read_text()
    ended = broker.start_to_end()
    message = ended.stderr + ended.stdout
    assert ended.returncode == 1
    assert "AAAAAAAAAAAAAAAAAAAAQQ" in message
    assert "BBBBBBBBBBBBBBBBBBBBBQ" in message
    assert str(file) in message
    assert file.read_text() == before
    assert "Traceback" not in message


def test_a_taken_port_is_a_clear_error(make_broker: MakeBroker) -> None:
    first = make_broker().start()
    second = make_broker("second")
    second.port = first.port
    second.format()
    ended = second.start_to_end()
    message = ended.stderr + ended.stdout
    assert ended.returncode == 1
    assert str(first.port) in message
    assert "Traceback" not in message


@pytest.mark.smoke
def test_health_readiness_and_metrics_are_served(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    produce(broker, "counted", RECORDS[:100])
    status, body = broker.http("/health")
    assert (status, json.loads(body)["status"]) == (200, "green")
    status, body = broker.http("/ready")
    assert (status, json.loads(body)["ready"]) == (200, True)
    counted = "kafka_server_BrokerTopicMetrics_MessagesInPerSec_total"
    assert broker.metric(counted, topic="counted") == 100
    assert broker.metric("kafka_log_Log_LogEndOffset", topic="counted") == 100
    assert broker.http("/no-such-page")[0] == 404


def test_each_start_writes_a_quorum_state_with_a_higher_epoch(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker().start()
    file = broker.log_directory / "__cluster_metadata-0" / "quorum-state"
    first = json.loads(file.read_text())["leaderEpoch"]
    broker.kill()
    broker.start()
    assert json.loads(file.read_text())["leaderEpoch"] > first


def test_no_file_of_our_own_is_called_unknown(make_broker: MakeBroker) -> None:
    broker = make_broker(tiered=True).start()
    produce(broker, "kept", [(b"k", b"v")])
    broker.terminate()
    broker.start()
    broker.kill()
    broker.start()
    assert "left alone" not in broker.log_text()


def test_both_processes_of_a_node_log_as_they_are_told(make_broker: MakeBroker) -> None:
    """Only a start shows that its tier process, which reads no file, is told of the form."""
    settings = {"tidemark.log.format": "json", "tidemark.log.level": "INFO,rlm=DEBUG"}
    broker = make_broker(settings=settings, tiered=True).start()
    until(lambda: "the claim on the store" in broker.log_file.read_text(), "the tier logs")
    assert broker.terminate() == 0
    lines = [json.loads(line) for line in broker.log_file.read_text().splitlines()]
    assert re.match(r"Tidemark \d+\.\d+\S* starts: node_id=1 roles=broker,", lines[0]["message"])
    assert {line["process"] for line in lines} == {"main", "tier"}
