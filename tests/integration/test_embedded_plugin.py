"""The pytest plugin in a suite of somebody else's, and the page about it."""

import re
from pathlib import Path

import pytest

from tests.support.brokers.embedding_suite import OURS, run_suite
from tests.support.brokers.process import ROOT

USES = """
import os, sys

def test_one(tidemark_broker, kafka_bootstrap_servers, kafka_topic):
    assert kafka_bootstrap_servers == tidemark_broker.bootstrap_servers
    assert kafka_topic.startswith("test_one-")
    producer = tidemark_broker.producer()
    producer.produce(kafka_topic, b"hello")
    assert producer.flush(30) == 0
    assert not {m.partition(".")[0] for m in sys.modules} & set(%r)

def test_the_topic_is_fresh_and_the_last_one_is_gone(tidemark_broker, kafka_topic):
    metadata = tidemark_broker.admin().list_topics(timeout=30)
    assert [name for name in metadata.topics if name.startswith("test_")] == [kafka_topic]

def test_a_setting_of_the_ini_file_holds(tidemark_broker):
    from confluent_kafka.admin import ConfigResource
    admin = tidemark_broker.admin()
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    described = admin.describe_configs([resource])[resource]
    assert described.result(30)["log.retention.hours"].value == "17"

def test_a_broker_that_a_test_stopped_comes_back(tidemark_broker):
    tidemark_broker.stop()

def test_and_one_that_was_paused(tidemark_broker, kafka_topic):
    tidemark_broker.pause()

def test_a_name_of_letters_that_no_topic_has__ä__(kafka_topic):
    pass
""" % sorted(OURS)  # noqa: UP031 - braces are code here


@pytest.mark.smoke
def test_fixtures_of_the_plugin(tmp_path: Path) -> None:
    ini = "tidemark_settings =\n    log.retention.hours=17\n"
    code, printed = run_suite(tmp_path, USES, ini=ini)
    assert code == 0, printed
    assert "6 passed" in printed


MARKED = """
import pytest

seen = []

CONFIGS = {"retention.ms": 1000, "remote.storage.enable": True}

@pytest.mark.kafka_topic(partitions=3, configs=CONFIGS)
def test_the_topic_is_as_the_marker_says(tidemark_broker, kafka_topic):
    from confluent_kafka.admin import ConfigResource
    admin = tidemark_broker.admin()
    assert len(admin.list_topics(kafka_topic, timeout=30).topics[kafka_topic].partitions) == 3
    resource = ConfigResource(ConfigResource.Type.TOPIC, kafka_topic)
    configs = admin.describe_configs([resource])[resource].result(30)
    assert configs["retention.ms"].value == "1000"
    assert configs["remote.storage.enable"].value == "true"

@pytest.mark.kafka_topic(partition=3)
def test_wrong_marker(kafka_topic):
    pass

def test_a_topic_is_made_and_not_twice(tidemark_broker):
    import tidemark
    tidemark_broker.create_topic("made", 2, {"retention.ms": 5})
    with pytest.raises(tidemark.BrokerError, match="already exists"):
        tidemark_broker.create_topic("made")
    with pytest.raises(tidemark.BrokerError, match="made-too"):
        tidemark_broker.create_topic("made-too", configs={"no.such.config": 1})
"""


def test_a_marker_says_how_the_topic_is(tmp_path: Path) -> None:
    code, printed = run_suite(tmp_path, MARKED)
    assert code == 1, printed
    assert "2 passed" in printed
    assert "kafka_topic: there are partitions=... and configs=..., by name" in printed
    assert "def _fresh_topic" not in printed, "no source of ours"


FAILING = """
import tidemark

def warn(broker, text):
    with broker.log_file.open("a") as log:
        log.write(f"[2026-11-30 10:00:00,001] WARNING {text} (broker)\\n")

def test_passes(tidemark_broker):
    warn(tidemark_broker, "of a test that passes")

def test_fails(tidemark_broker, tidemark_faults, kafka_topic):
    warn(tidemark_broker, "of a test that fails")
    tidemark_faults.add(api="Produce", topic=kafka_topic, delay_ms=50)
    tidemark_faults.add(api="Produce", topic="removed", delay_ms=50).remove()
    producer = tidemark_broker.producer()
    producer.produce(kafka_topic, b"one")
    assert producer.flush(10) == 0
    assert False

def test_is_refused(tidemark_broker, tidemark_faults):
    assert repr(tidemark_broker).endswith(f"{tidemark_broker.bootstrap_servers}: node 1 runs>")
    tidemark_faults.add(error="NOT_A_LEADER")

def test_with_its_own():
    with tidemark.Broker() as broker:
        warn(broker, "of a broker that is gone")
        assert False
"""


def test_a_failing_test_shows_what_the_broker_warned_of_meanwhile(tmp_path: Path) -> None:
    code, printed = run_suite(tmp_path, FAILING, ("-p", "no:randomly"))
    assert code == 1, printed
    assert "Tidemark warnings during call" in printed
    assert "WARNING of a test that fails" in printed
    assert printed.count("Tidemark faults during call") == 1, "where there are some"
    assert re.search(r"<fault \d+: .*delay_ms=50.*hits=1", printed)
    assert "topic='removed'" not in printed.replace('topic="removed"', "")
    assert "taking commands" not in printed
    assert "BrokerError: faults.add: " in printed
    ours = re.findall(r"^\S*tidemark/(?:embedded/|pytest_plugin)\S*: ", printed, re.MULTILINE)
    assert (ours, "Bearer" in printed) == ([], False), "the test's own line, then the sentence"
    assert "WARNING of a broker that is gone" in printed
    assert "of a test that passes" not in printed.replace('warn(tidemark_broker, "of', "")


STARTING = """
import pytest

@pytest.fixture(scope="session")
def tidemark_settings():
    return {"retention.of.nothing": 1}

@pytest.mark.filterwarnings("ignore")
def test_fails(tidemark_broker):
    said = tidemark_broker.log_file.read_text()
    print("it has said so" if "retention.of.nothing" in said else "it has not")
    assert False
"""


def test_what_a_broker_says_at_its_start_is_not_of_the_first_test(tmp_path: Path) -> None:
    code, printed = run_suite(tmp_path, STARTING)
    assert (code, "it has said so" in printed) == (1, True), printed
    assert "Tidemark warnings" not in printed


THREE = """
from confluent_kafka.admin import ConfigResource

seen = []

def test_a_leader_is_killed(tidemark_cluster, tidemark_cluster_topic):
    seen.append(tidemark_cluster_topic)
    producer = tidemark_cluster.producer(acks="all")
    topic = producer.list_topics(tidemark_cluster_topic).topics[tidemark_cluster_topic]
    assert len(topic.partitions[0].replicas) == 3
    tidemark_cluster.kill(topic.partitions[0].leader)
    producer.produce(tidemark_cluster_topic, b"one")
    assert producer.flush(60) == 0

def test_the_others_are_not_whole_either(tidemark_cluster):
    assert len(tidemark_cluster.broker_pids) == 3
    tidemark_cluster.faults_on(12).add(api="Produce", delay_ms=600_000)
    tidemark_cluster.kill(1)
    tidemark_cluster.isolate(11)
    tidemark_cluster.isolate(12, clients=False)
    tidemark_cluster.pause(13)

def test_all_is_whole_again(tidemark_cluster, tidemark_cluster_topic):
    assert tidemark_cluster.faults_on(12).list() == []
    admin = tidemark_cluster.admin()
    names = [one for one in admin.list_topics(timeout=60).topics if one.startswith("test_")]
    assert names == [tidemark_cluster_topic] and names != seen
    resource = ConfigResource(ConfigResource.Type.BROKER, "13")
    described = admin.describe_configs([resource])[resource].result(60)
    assert described["log.retention.hours"].value == "17"
"""


@pytest.mark.lasts(seconds=20)
def test_three_brokers_of_the_plugin_are_whole_for_each_test(tmp_path: Path) -> None:
    ini = "tidemark_settings =\n    log.retention.hours=17\n"
    code, printed = run_suite(tmp_path, THREE, ini=ini)
    assert code == 0, printed
    assert "3 passed" in printed


OVERRIDDEN = """
import pytest
import tidemark

seen = set()

@pytest.fixture
def tidemark_broker():
    with tidemark.Broker(settings={"remote.log.storage.system.enable": False}) as broker:
        yield broker

@pytest.mark.parametrize("number", range(2))
def test_each_has_its_own(tidemark_broker, kafka_topic, tidemark_faults, number):
    assert tidemark_broker.data_dir not in seen
    seen.add(tidemark_broker.data_dir)
    tidemark_faults.add(api="DeleteTopics", error="NOT_CONTROLLER")
    assert kafka_topic in tidemark_broker.admin().list_topics(timeout=30).topics
"""


def test_a_suite_may_have_the_broker_in_another_scope(tmp_path: Path) -> None:
    code, printed = run_suite(tmp_path, OVERRIDDEN)
    assert code == 0, printed


WORKERS = """
from pathlib import Path

def test_in_each(tidemark_broker, kafka_topic, worker_id):
    Path(worker_id).write_text(tidemark_broker.bootstrap_servers)
"""


def test_each_worker_of_xdist_has_a_broker_of_its_own(tmp_path: Path) -> None:
    options = ("-p", "xdist.plugin", "-n", "2", "--dist", "each")
    code, printed = run_suite(tmp_path, WORKERS, options)
    assert code == 0, printed
    addresses = {path.read_text() for path in tmp_path.glob("gw*")}
    assert len(addresses) == 2


def test_a_wrong_setting_is_named_by_the_fixture(tmp_path: Path) -> None:
    for ini, said in (
        ("nonsense", "is not of the form name=value"),
        ("a.b=1\n    log.dirs=", "log"),
    ):
        suite = "def test_one(tidemark_broker): pass"
        code, printed = run_suite(tmp_path, suite, ini=f"tidemark_settings =\n    {ini}\n")
        assert code != 0
        assert said in printed


def test_a_suite_that_uses_no_broker_starts_none_and_imports_none(tmp_path: Path) -> None:
    suite = """
import sys

def test_nothing():
    assert "subprocess" in sys.modules  # pytest's own
    assert not [m for m in sys.modules if m.startswith(("tidemark.embedded", "confluent_kafka"))]
"""
    code, printed = run_suite(tmp_path, suite)
    assert code == 0, printed


PAGE = ROOT / "docs" / "testing-with-tidemark.md"
BLOCK = re.compile(r"^```(?:python|ini) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.lasts(seconds=25)
def test_the_page_on_test_suites_works_word_for_word(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 6
    count = 0
    for name, text in blocks:
        (tmp_path / name).write_text(text)
        count += text.count("def test_")
    ini = (tmp_path / "pytest.ini").read_text().partition("\n")[2]
    code, printed = run_suite(tmp_path, "def test_none(): pass", ini=ini)
    assert code == 0, printed
    assert f"{count + 1} passed" in printed
