"""The options of a write."""

import pickle

import pytest

from pipeline.errors import OptionError
from pipeline.spark.sink_options import sink_settings, sink_warnings

HERE = {"kafka.bootstrap.servers": "h:1"}


def test_the_producer_is_idempotent_and_partitions_as_the_java_client_does() -> None:
    settings = sink_settings(HERE)
    assert settings.client["enable.idempotence"] == "true"
    assert settings.client["acks"] == "all"
    assert settings.client["partitioner"] == "murmur2_random"
    assert settings.topic is None


@pytest.mark.parametrize("name", ["kafka.acks", "kafka.request.required.acks", "KAFKA.ACKS"])
def test_weaker_acks_are_the_users_choice_and_end_idempotence(name: str) -> None:
    client = sink_settings({**HERE, name: "0"}).client
    assert client["enable.idempotence"] == "false"
    assert "0" in (client.get("acks"), client.get("request.required.acks"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({**HERE, "topic": " "}, "topic is empty"),
        ({**HERE, "topics": "a"}, "there is no option 'topics' for writing; did you mean topic?"),
        ({**HERE, "foo": "a"}, "no option 'foo' for writing: allowed are topic and kafka.*"),
        ({**HERE, "kafka.value.serializer": "x"}, "kafka.value.serializer is not allowed"),
        ({**HERE, "kafka.transactional.id": "x"}, "at least once"),
        ({**HERE, "kafka.max.block.ms": "soon"}, "must be milliseconds"),
        ({**HERE, "kafka.delivery.timeout.ms": "0"}, "must be milliseconds"),
        ({**HERE, "kafka.buffer.memory": "1"}, "at least 1024"),
        ({**HERE, "kafka.buffer.memory": "10²4"}, "at least 1024"),
        ({**HERE, "kafka.max.block.ms": "²"}, "must be milliseconds"),
        ({**HERE, "kafka.max.block.ms": "1" * 5_000}, "must be milliseconds"),
    ],
)
def test_a_wrong_option_is_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        sink_settings(options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_of_the_java_client_are_understood() -> None:
    settings = sink_settings(
        {**HERE, "kafka.max.request.size": "2000000", "kafka.buffer.memory": "1048576"}
    )
    assert settings.client["message.max.bytes"] == "2000000"
    assert settings.client["queue.buffering.max.kbytes"] == "1024"


def test_a_delivery_deadline_has_one_name() -> None:
    settings = sink_settings({**HERE, "kafka.message.timeout.ms": "7000"})
    assert settings.delivery_ms == 7000
    assert settings.client["delivery.timeout.ms"] == "7000"
    assert "message.timeout.ms" not in settings.client


def test_options_that_spark_adds_itself_are_no_mistake() -> None:
    options = {**HERE, "topic": "t", "checkpointLocation": "/c", "queryName": "q"}
    sink_settings(options)
    assert sink_warnings(options) == ()


def test_options_of_the_source_are_a_warning() -> None:
    options = {**HERE, "includeheaders": "true", "startingOffsets": "earliest"}
    sink_settings(options)
    assert sink_warnings(options) == (
        "option includeHeaders has no effect in a write: it is for reading",
        "option startingOffsets has no effect in a write: it is for reading",
    )


def test_the_topic_is_trimmed() -> None:
    assert sink_settings({**HERE, "topic": " orders "}).topic == "orders"


def test_secrets_are_not_shown_and_settings_travel() -> None:
    settings = sink_settings({**HERE, "kafka.sasl.password": "hunter2"})
    assert "hunter2" not in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings
