import pytest

from kafka_protocol.types import TopicIdPartition
from rlm.link.messages import Connect
from rlmm.topic_based.settings import parse
from rlmm.topic_based.topic_port import metadata_partition_for, murmur2

TID = bytes(range(1, 17))
GOOD = {"node.id": "1", "cluster.id": "c", "log.dir": "/d", "bootstrap.servers": "b:1"}


@pytest.mark.parametrize(
    ("partition", "count", "expected"),
    [(0, 50, 13), (1, 50, 41), (2, 50, 44), (3, 50, 37), (3, 3, 2)],
)
def test_kafkas_vectors(partition: int, count: int, expected: int) -> None:
    owner = TopicIdPartition(TID, partition, "any name")
    assert metadata_partition_for(owner, count) == expected


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"", 275646681),
    ],
)
def test_murmur2_vectors(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF


def test_settings_have_kafkas_defaults_and_pass_client_settings_through() -> None:
    settings = parse(
        {
            **GOOD,
            "remote.log.metadata.common.client.security.protocol": "SSL",
            "remote.log.metadata.producer.linger.ms": "3",
            "remote.log.metadata.consumer.check.crcs": "true",
        }
    )
    assert settings.consume_wait_ms == settings.initialization_retry_max_ms == 120_000
    assert settings.initialization_retry_interval_ms == 100
    assert settings.producer == {"security.protocol": "SSL", "linger.ms": "3"}
    assert settings.consumer == {"security.protocol": "SSL", "check.crcs": "true"}


def test_settings_keep_what_authenticates_their_clients_and_do_not_show_it() -> None:
    access = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "open sesame",
    }
    settings = parse({**GOOD, **access})
    assert settings.security == access
    assert "sesame" not in repr(settings)
    assert "sesame" not in repr(Connect(access))


@pytest.mark.parametrize("key", GOOD)
def test_what_the_broker_must_give_is_named(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        parse({**GOOD, key: ""})


@pytest.mark.parametrize("value", ["x", "-1", ""])
def test_a_wrong_number_is_named_with_what_is_allowed(value: str) -> None:
    with pytest.raises(ValueError, match=r"remote\.log\.metadata\.consume\.wait\.ms=.*allowed"):
        parse({**GOOD, "remote.log.metadata.consume.wait.ms": value})
