"""What the tier does when something fails: the store, the tier itself, its cache, its settings."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import ResourceType

from broker.remote.supervisor import HEARTBEAT_LIMIT_MS
from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import (
    QUICK,
    alter,
    as_read,
    create,
    delete_records,
    delete_topic,
    tiered_away,
    values,
)
from tests.support.stores.audit import METADATA_PARTITIONS, METADATA_TOPIC, agreed

MakeBroker = Callable[..., BrokerProcess]
RECORDS = values(700)
READ = "tidemark_remote_metadata_records"


def quick(make_broker: MakeBroker, **settings: str) -> BrokerProcess:
    more = {key.replace("_", "."): value for key, value in settings.items()}
    return make_broker(tiered=True, settings=QUICK | more).start()


def parts(broker: BrokerProcess) -> dict[str, str]:
    found: dict[str, str] = broker.health()["parts"]
    return found


def is_green(broker: BrokerProcess) -> bool:
    return set(parts(broker).values()) == {"green"}


def test_an_unavailable_store_is_told_once_and_caught_up_with(make_broker: MakeBroker) -> None:
    broker = quick(make_broker)
    create(broker, "tides", remote_storage_enable="true")
    until(lambda: is_green(broker), "all is well")
    broker.remote_directory.mkdir(exist_ok=True)
    away = broker.remote_directory.rename(broker.directory / "away")
    broker.remote_directory.write_text("not a directory")
    failed = "kafka_server_BrokerTopicMetrics_RemoteCopyErrorsPerSec_total"
    produce(broker, "tides", RECORDS[:400])
    until(lambda: broker.metric(failed) >= 3, "copying is tried again and again")
    assert not is_green(broker)
    assert [name for name, state in parts(broker).items() if state != "green"] == ["tier"]
    assert broker.http("/ready")[0] == 200, "clients of local data are served"
    produce(broker, "tides", RECORDS[400:])
    assert read_all(broker, "tides") == as_read(RECORDS)
    assert broker.log_text().count("copying to the remote store fails") == 1
    broker.remote_directory.unlink()
    away.rename(broker.remote_directory)
    closed = len(broker.local_segments("tides")) - 1
    until(lambda: len(broker.remote_segments("tides")) == closed, "copying catches up")
    until(lambda: is_green(broker), "all is well again")
    assert broker.log_text().count("copying to the remote store works again") == 1
    agreed(broker)


def test_a_restart_reads_from_the_stored_position_or_else_the_whole_topic(
    make_broker: MakeBroker,
) -> None:
    broker = quick(make_broker)
    create(broker, "tides", remote_storage_enable="true", local_retention_bytes="1")
    produce(broker, "tides", values(1_400))
    tiered_away(broker, "tides")
    agreed(broker)
    written = sum(end_offsets(broker, METADATA_TOPIC, n)[1] for n in range(METADATA_PARTITIONS))
    until(lambda: broker.metric(READ, outcome="read") == written, "all of it was read and told")
    assert broker.terminate() == 0
    broker.start()
    assert read_all(broker, "tides") == as_read(values(1_400))
    until(lambda: broker.metric(READ, outcome="read"), "the barrier of this life was read")
    assert broker.metric(READ, outcome="read") < written / 2, "and nothing of the former one"
    assert broker.terminate() == 0
    shutil.rmtree(broker.log_directory / "remote-log-metadata")
    broker.start()
    assert read_all(broker, "tides") == as_read(values(1_400))
    until(lambda: broker.metric(READ, outcome="read") > written, "everything was read again")
    agreed(broker)


def test_the_tier_killed_at_random_while_it_deletes_leaves_nothing_behind(
    make_broker: MakeBroker,
) -> None:
    broker = quick(make_broker, remote_log_manager_task_interval_ms="200")
    rng = random.Random(4711)
    for round_ in range(5):
        topic = f"round-{round_}"
        create(broker, topic, remote_storage_enable="true", local_retention_bytes="1")
        # Batches of 50, so that segments are of 200, whatever the producer's timing.
        produce(broker, topic, values(1_200), **{"batch.num.messages": 50, "linger.ms": 1_000})
        tiered_away(broker, topic)
        bases = broker.remote_segments(topic)
        cut = bases[rng.randrange(1, 4)]
        until(broker.tier_pid, "a tier runs")
        left = object_count(broker) - rng.randrange(0, 8)
        delete_records(broker, topic, cut)
        alter(broker, ResourceType.TOPIC, topic, retention_bytes=str(2 << 20))
        if round_ % 2:
            delete_topic(broker, f"round-{round_ - 1}")
        until(lambda n=left: object_count(broker) <= n, "it deletes")  # type: ignore[misc]
        broker.kill_tier()
        # Segments of 1 MB, and a part of one that is not remote; 2 MB may stay.
        until(lambda t=topic, b=bases: end_offsets(broker, t)[0] == b[-2], "retention continues")  # type: ignore[misc]
        assert read_all(broker, topic) == as_read(values(1_200))[bases[3] :]
    until(lambda: not broker.remote_paths("round-[02]-*/*/*"), "deleted topics go")
    agreed(broker)


def object_count(broker: BrokerProcess) -> int:
    return len(broker.remote_paths("**/*.*"))


def test_partitions_in_several_log_directories_are_tiered(make_broker: MakeBroker) -> None:
    broker = make_broker(tiered=True, settings=QUICK)
    second = broker.directory / "more-logs"
    broker.settings["log.dirs"] = f"{broker.log_directory},{second}"
    broker.start()
    create(broker, "tides", 4, remote_storage_enable="true", local_retention_bytes="1")
    for partition in range(4):
        produce(broker, "tides", values(500, partition), partition)

    def local(partition: int) -> list[Path]:
        return [
            path
            for root in (broker.log_directory, second)
            for path in (root / f"tides-{partition}").glob("*.log")
        ]

    assert {path.parent.parent for p in range(4) for path in local(p)} == {
        broker.log_directory,
        second,
    }
    for _ in range(2):
        until(lambda: all(len(local(p)) == 1 for p in range(4)), "the active ones are left")
        for partition in range(4):
            expected = as_read(values(500, partition))
            assert read_all(broker, "tides", partition) == expected
        agreed(broker)
        broker.kill()
        broker.start()


def test_quotas_and_pools_change_without_a_restart(make_broker: MakeBroker) -> None:
    broker = quick(make_broker)
    slow = {"remote_log_manager_copy_max_bytes_per_second": "10000"}
    alter(broker, ResourceType.BROKER, "1", **slow)
    alter(broker, ResourceType.BROKER, "1", remote_log_manager_copier_thread_pool_size="5")
    create(broker, "tides", remote_storage_enable="true", local_retention_bytes="1")
    produce(broker, "tides", RECORDS)
    paused = "kafka_server_RemoteLogManager_remote_copy_throttle_time_max"
    until(lambda: broker.metric(paused) > 1_000, "copying waits for its quota")
    assert len(broker.remote_segments("tides")) < 3
    broker.kill_tier()
    until(lambda: broker.metric(paused) > 1_000, "the next tier has the same quota")
    fast = {"remote_log_manager_copy_max_bytes_per_second": "100000000"}
    alter(broker, ResourceType.BROKER, "1", **fast)
    tiered_away(broker, "tides")
    assert read_all(broker, "tides") == as_read(RECORDS)


def test_reads_wait_for_the_fetch_quota_until_it_is_raised(make_broker: MakeBroker) -> None:
    broker = quick(make_broker)
    create(broker, "tides", remote_storage_enable="true", local_retention_bytes="1")
    produce(broker, "tides", RECORDS)
    tiered_away(broker, "tides")
    limit = "remote_log_manager_fetch_max_bytes_per_second"
    alter(broker, ResourceType.BROKER, "1", **{limit: "1"})
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(read_all, broker, "tides")
        until(lambda: broker.metric("tidemark_remote_throttled_reads"), "a read waits")
        pause = "kafka_server_RemoteLogManager_remote_fetch_throttle_time_max"
        until(lambda: broker.metric(pause) > 1_000, "its pause is told")
        assert not reading.done()
        alter(broker, ResourceType.BROKER, "1", **{limit: "100000000"})
        assert reading.result(60) == as_read(RECORDS)


def test_the_tier_measures_under_kafkas_names(make_broker: MakeBroker) -> None:
    broker = quick(make_broker)
    create(broker, "tides", remote_storage_enable="true", local_retention_bytes="1")
    produce(broker, "tides", RECORDS)
    tiered_away(broker, "tides")
    assert read_all(broker, "tides") == as_read(RECORDS)
    count = "kafka_log_remote_RemoteLogManager_RemoteLogReaderFetchRateAndTimeMs_count"
    until(lambda: broker.metric(count) > 0, "reads were timed")
    page = broker.http("/metrics")[1]
    families = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families)), "the broker and its tier count under other names"
    assert "tidemark_remote_metrics_age_ms" in families
    of_topic = 'topic="tides"'
    for name, labels in {
        "kafka_server_BrokerTopicMetrics_RemoteCopyBytesPerSec_total": of_topic,
        "kafka_server_BrokerTopicMetrics_RemoteCopyRequestsPerSec_total": of_topic,
        "kafka_server_BrokerTopicMetrics_RemoteFetchBytesPerSec_total": of_topic,
        "kafka_server_BrokerTopicMetrics_RemoteFetchRequestsPerSec_total": of_topic,
        "kafka_server_BrokerTopicMetrics_RemoteCopyLagBytes": of_topic,
        "kafka_server_BrokerTopicMetrics_RemoteCopyLagSegments": of_topic,
        "kafka_server_BrokerTopicMetrics_RemoteDeleteLagBytes": of_topic,
        "kafka_server_BrokerTopicMetrics_RemoteDeleteLagSegments": of_topic,
        "kafka_server_BrokerTopicMetrics_RemoteLogSizeBytes": of_topic,
        "kafka_server_BrokerTopicMetrics_RemoteLogMetadataCount": of_topic,
        "kafka_server_BrokerTopicMetrics_RemoteLogSizeComputationTime": of_topic,
        "kafka_log_remote_RemoteLogManager_RemoteLogManagerTasksAvgIdlePercent": "",
        "kafka_log_remote_RemoteStorageThreadPool_RemoteLogReaderAvgIdlePercent": "",
        "kafka_log_remote_RemoteStorageThreadPool_RemoteLogReaderTaskQueueSize": "",
        "kafka_server_RemoteLogManager_remote_fetch_throttle_time_avg": "",
        "kafka_server_RemoteLogManager_remote_fetch_throttle_time_max": "",
        "kafka_server_RemoteLogManager_remote_copy_throttle_time_avg": "",
        "kafka_server_RemoteLogManager_remote_copy_throttle_time_max": "",
        "kafka_server_RLMCopy_byte_rate": "",
        "kafka_server_RLMFetch_byte_rate": "",
        "tidemark_remote_throttled_reads": "",
        "kafka_server_DelayedRemoteFetchMetrics_ExpiresPerSec_total": "",
    }.items():
        lines = [line for line in page.splitlines() if line.split("{")[0].split(" ")[0] == name]
        assert any(labels in line for line in lines), name
    for prefix in ("tidemark_", "tidemark_remote_"):
        assert f"\n{prefix}event_loop_longest_gap_ms " in page
    idle = broker.metric("kafka_log_remote_RemoteStorageThreadPool_RemoteLogReaderAvgIdlePercent")
    assert 0 < idle <= 1


@pytest.mark.slow
def test_a_broker_that_stood_still_does_not_kill_its_tier(make_broker: MakeBroker) -> None:
    broker = quick(make_broker)
    until(lambda: is_green(broker), "the tier is up, so it is asked whether it lives")
    tier = broker.tier_pid()
    began_s = time.monotonic()
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        still_s = HEARTBEAT_LIMIT_MS / 1_000 + 2
        until(lambda: time.monotonic() - began_s > still_s, "it stood still for long")
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    until(lambda: is_green(broker), "it continues")
    assert broker.tier_pid() == tier
    assert "tier process is silent" not in broker.log_file.read_text()


def test_off_means_off(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    with pytest.raises(KafkaException, match=r"remote\.storage\.enable"):
        create(broker, "tides", remote_storage_enable="true")
    assert broker.tier_pid() is None
    names = {path.name for path in broker.directory.rglob("*")}
    assert not [name for name in names if name.startswith(("tier", "remote", "__remote"))]
    page = broker.http("/metrics")[1].replace("RequestMetrics_RemoteTimeMs", "")  # of each request
    assert "Remote" not in page


REFUSED = {
    "no such module": ("remote.log.storage.manager.class.name", "no.such:Plugin", "cannot import"),
    "not a plugin": ("remote.log.storage.manager.class.name", "json:JSONDecoder", "not a subclass"),
    "a Java class": (
        "remote.log.storage.manager.class.name",
        "com.example.Store",
        "of a Python class",
    ),
    "a setting": ("rsm.config.dir", "", "rsm.config.dir"),
    "the manager": ("remote.log.metadata.manager.class.name", "no.such:Manager", "cannot import"),
    "its setting": (
        "rlmm.config.remote.log.metadata.consume.wait.ms",
        "soon",
        "remote.log.metadata.consume.wait.ms",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_plugin_that_cannot_start_ends_the_start_and_nothing_is_written(
    make_broker: MakeBroker, case: str
) -> None:
    key, value, cause = REFUSED[case]
    broker = make_broker(tiered=True)
    assert broker.format().returncode == 0
    broker.settings[key] = value
    before = contents(broker.log_directory)
    ended = broker.start_to_end()
    assert ended.returncode == 1
    assert cause in ended.stderr, ended.stderr
    assert key.removeprefix("rlmm.config.") in ended.stderr
    assert contents(broker.log_directory) == before


def contents(directory: Path) -> dict[str, bytes]:
    """All files but the locks, which are empty."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in {".lock", "tier.lock"}
    }
