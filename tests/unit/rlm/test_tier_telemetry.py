"""What the tier counts goes with the topics that it is counted for."""

from rlm.telemetry import LEFT_MAX, Telemetry


def count_everything(telemetry: Telemetry, topic: str, partition: int = 0) -> None:
    telemetry.copied(topic, 10)
    telemetry.copy_failed(topic, OSError("away"))
    telemetry.deleted(topic)
    telemetry.delete_failed(topic, OSError("away"))
    telemetry.corrupt(topic)
    telemetry.passed(topic, "copy")
    telemetry.passed(topic, "expire")
    for operation in ("copy", "fetch", "fetch_index", "delete"):
        telemetry.store_called(operation, topic, 10, 3, failed=True)
    telemetry.judged(topic, partition, 4)
    telemetry.measured(topic, partition, copy_lag_bytes=1, copy_lag_segments=2, remote_bytes=3)
    telemetry.measured(topic, partition, delete_lag_bytes=1, delete_lag_segments=2)
    telemetry.measured(topic, partition, remote_segments=4)


def of_topic(telemetry: Telemetry, topic: str) -> set[str]:
    return {one.name for one in telemetry.registry.samples() if one.labels.get("topic") == topic}


def test_with_its_last_partition_nothing_of_a_topic_is_left() -> None:
    telemetry = Telemetry(store="plugin")
    for partition in (0, 1):
        telemetry.expect("goes", partition)
        count_everything(telemetry, "goes", partition)
    telemetry.expect("stays", 0)
    count_everything(telemetry, "stays")
    everything = of_topic(telemetry, "stays")
    assert of_topic(telemetry, "goes") == everything
    telemetry.forget("goes", 0)
    assert of_topic(telemetry, "goes") == everything
    assert not [
        one
        for one in telemetry.registry.samples()
        if (one.labels.get("topic"), one.labels.get("partition")) == ("goes", "0")
    ]
    telemetry.forget("goes", 1)
    assert of_topic(telemetry, "goes") == set()
    assert of_topic(telemetry, "stays") == everything


def test_work_that_ends_after_its_topic_has_left_brings_nothing_back() -> None:
    telemetry = Telemetry()
    telemetry.expect("goes", 0)
    telemetry.forget("goes", 0)
    count_everything(telemetry, "goes")
    assert of_topic(telemetry, "goes") == set()
    telemetry.expect("goes", 0)  # another one of the name, or led here again
    count_everything(telemetry, "goes")
    assert len(of_topic(telemetry, "goes")) > 15


def test_partitions_that_only_follow_take_nothing_along() -> None:
    telemetry = Telemetry()
    telemetry.expect("tides", 0)
    telemetry.copied("tides", 10)
    telemetry.forget("tides", 7)
    telemetry.expect("tides", 0)
    assert len(of_topic(telemetry, "tides")) == 2


def test_topics_that_left_are_remembered_in_a_bounded_number() -> None:
    telemetry = Telemetry()
    for n in range(LEFT_MAX + 5):
        telemetry.expect(f"t{n}", 0)
        telemetry.forget(f"t{n}", 0)
        telemetry.copied(f"t{n}", 1)
    assert len(telemetry._left) == LEFT_MAX
    assert telemetry.registry.samples() == Telemetry().registry.samples()
