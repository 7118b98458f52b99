"""Kafka's own command-line tools against a broker of ours: topics, settings, records, offsets."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.kafka.tools import kafka_tool, require_kafka_tools

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    require_kafka_tools()


@pytest.fixture
def tool(broker: BrokerProcess) -> Callable[..., str]:
    """Run a tool against the broker of this module."""

    def run(name: str, *arguments: str, stdin: str = "") -> str:
        return kafka_tool(name, "--bootstrap-server", broker.bootstrap, *arguments, stdin=stdin)

    return run


def test_topics_creates_describes_lists_and_deletes(tool: Callable[..., str]) -> None:
    made = tool("topics", "--create", "--topic", "tool-topic", "--partitions", "3",
                "--replication-factor", "1", "--config", "retention.ms=86400000")  # fmt: skip
    assert "Created topic tool-topic." in made
    described = tool("topics", "--describe", "--topic", "tool-topic")
    assert "PartitionCount: 3" in described
    assert "retention.ms=86400000" in described
    assert len(re.findall(r"Leader: 1\b", described)) == 3
    assert "tool-topic" in tool("topics", "--list").split()
    tool("topics", "--delete", "--topic", "tool-topic")
    assert "tool-topic" not in tool("topics", "--list").split()


def test_topics_adds_partitions_and_never_takes_any_away(
    tool: Callable[..., str], broker: BrokerProcess
) -> None:
    tool("topics", "--create", "--topic", "tool-grown", "--partitions", "2")
    assert tool("topics", "--alter", "--topic", "tool-grown", "--partitions", "4") == ""
    described = tool("topics", "--describe", "--topic", "tool-grown")
    assert "PartitionCount: 4" in described
    assert len(re.findall(rf"Leader: {broker.node_id}\b", described)) == 4
    assigned = ("--partitions", "5", "--replica-assignment", ",".join([str(broker.node_id)] * 5))
    tool("topics", "--alter", "--topic", "tool-grown", *assigned)
    assert "PartitionCount: 5" in tool("topics", "--describe", "--topic", "tool-grown")
    with pytest.raises(AssertionError, match=r"currently has 5 partition.*not be an increase"):
        tool("topics", "--alter", "--topic", "tool-grown", "--partitions", "3")


@pytest.mark.long(seconds=15)
def test_configs_shows_and_changes_a_topic(tool: Callable[..., str]) -> None:
    entity = ("--entity-type", "topics", "--entity-name", "tool-config")
    tool("topics", "--create", "--topic", "tool-config")
    tool("configs", "--alter", *entity, "--add-config", "retention.ms=5000,segment.bytes=2097152")
    described = tool("configs", "--describe", *entity)
    assert "retention.ms=5000" in described
    assert "segment.bytes=2097152" in described
    tool("configs", "--alter", *entity, "--delete-config", "retention.ms")
    described = tool("configs", "--describe", *entity)
    assert "retention.ms" not in described
    assert "segment.bytes=2097152" in described
    everything = tool("configs", "--describe", "--all", *entity)
    assert "retention.ms=604800000" in everything
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in everything


def test_configs_describes_the_broker(tool: Callable[..., str], broker: BrokerProcess) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", str(broker.node_id))
    everything = tool("configs", "--describe", "--all", *entity)
    assert f"log.dirs={broker.log_directory}" in everything
    assert "num.partitions=1" in everything


def test_log_dirs_shows_where_partitions_lie(
    tool: Callable[..., str], broker: BrokerProcess
) -> None:
    tool("topics", "--create", "--topic", "tool-dirs", "--partitions", "2")
    tool("console-producer", "--topic", "tool-dirs", stdin="one\n")
    for only in ((), ("--topic-list", "tool-dirs,tool-missing")):
        shown = tool("log-dirs", "--describe", *only).splitlines()[-1]
        (node,) = json.loads(shown)["brokers"]
        assert node["broker"] == broker.node_id
        (directory,) = node["logDirs"]
        assert (directory["logDir"], directory["error"]) == (str(broker.log_directory), None)
        found = {one["partition"]: one for one in directory["partitions"]}
        for name in ("tool-dirs-0", "tool-dirs-1"):
            (file,) = (broker.log_directory / name).glob("*.log")
            size = file.stat().st_size
            assert found[name] == {
                "partition": name, "size": size, "offsetLag": 0, "isFuture": False
            }  # fmt: skip
    assert sorted(found) == ["tool-dirs-0", "tool-dirs-1"]


def test_configs_of_all_groups_and_subscriptions_are_none(tool: Callable[..., str]) -> None:
    for kind in ("groups", "client-metrics"):
        assert tool("configs", "--describe", "--entity-type", kind).strip() == ""


def test_what_the_console_producer_sends_the_console_consumer_prints(
    tool: Callable[..., str],
) -> None:
    tool("topics", "--create", "--topic", "tool-console", "--partitions", "1")
    lines = [f"key{n}:line {n}" for n in range(100)]
    tool("console-producer", "--topic", "tool-console", "--reader-property", "parse.key=true",
         "--reader-property", "key.separator=:", stdin="\n".join(lines) + "\n")  # fmt: skip
    shown = tool("console-consumer", "--topic", "tool-console", "--partition", "0", "--offset",
                 "earliest", "--max-messages", "100", "--formatter-property", "print.key=true",
                 "--formatter-property", "key.separator=:")  # fmt: skip
    assert [line for line in shown.splitlines() if line.startswith("key")] == lines
    last = tool("console-consumer", "--topic", "tool-console", "--partition", "0", "--offset", "98",
                "--max-messages", "2")  # fmt: skip
    assert [line for line in last.splitlines() if line.startswith("line")] == ["line 98", "line 99"]


@pytest.mark.long(seconds=15)
def test_perf_test_offsets_and_deleted_records_agree(
    tool: Callable[..., str], broker: BrokerProcess, tmp_path: Path
) -> None:
    tool("topics", "--create", "--topic", "tool-perf", "--partitions", "1")
    report = kafka_tool("producer-perf-test", "--topic", "tool-perf", "--num-records", "20000",
                        "--record-size", "100", "--throughput", "-1", "--producer-props",
                        f"bootstrap.servers={broker.bootstrap}")  # fmt: skip
    assert "20000 records sent" in report

    def offset(time: str) -> int:
        answer = tool("get-offsets", "--topic", "tool-perf", "--time", time)
        return int(answer.strip().splitlines()[0].split(":")[2])

    assert (offset("earliest"), offset("latest")) == (0, 20_000)
    assert 0 <= offset("max-timestamp") < 20_000
    file = tmp_path / "records.json"
    wanted = {"topic": "tool-perf", "partition": 0, "offset": 5_000}
    file.write_text(json.dumps({"partitions": [wanted], "version": 1}))
    assert "low_watermark: 5000" in tool("delete-records", "--offset-json-file", str(file))
    assert (offset("earliest"), offset("latest")) == (5_000, 20_000)


def test_cluster_id_and_api_versions_are_told(
    tool: Callable[..., str], broker: BrokerProcess
) -> None:
    properties = (broker.log_directory / "meta.properties").read_text()
    cluster_id = re.search(r"^cluster\.id=(.*)$", properties, re.MULTILINE)
    assert cluster_id is not None
    told = kafka_tool("cluster", "cluster-id", "--bootstrap-server", broker.bootstrap)
    assert cluster_id[1] in told
    versions = tool("broker-api-versions")
    for name, served in {
        "Produce(0)": "0 to 13",
        "Fetch(1)": "4 to 18",
        "ListOffsets(2)": "1 to 11",
        "Metadata(3)": "0 to 13",
        "CreateTopics(19)": "2 to 7",
        "DeleteTopics(20)": "1 to 6",
        "DeleteRecords(21)": "0 to 2",
        "InitProducerId(22)": "0 to 5",
        "OffsetForLeaderEpoch(23)": "2 to 4",
        "DescribeConfigs(32)": "1 to 4",
        "AlterConfigs(33)": "0 to 2",
        "DescribeLogDirs(35)": "1 to 5",
        "CreatePartitions(37)": "0 to 3",
        "IncrementalAlterConfigs(44)": "0 to 1",
        "DescribeCluster(60)": "0 to 2",
        "ListConfigResources(74)": "0 to 1",
        "DescribeTopicPartitions(75)": "0 ",
    }.items():
        assert re.search(re.escape(name) + ": " + re.escape(served), versions), name
    assert re.search(r"AlterClientQuotas\(49\): UNSUPPORTED", versions)


def test_metadata_quorum_asks_the_broker_for_its_controller(tool: Callable[..., str]) -> None:
    status = tool("metadata-quorum", "describe", "--status")
    assert re.search(r"^LeaderId: +1$", status, re.MULTILINE)
    replicas = tool("metadata-quorum", "describe", "--replication").splitlines()
    assert [line.split()[0] for line in replicas] == ["NodeId", "1"]
    assert replicas[1].split()[-1] == "Leader"
