import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from kafka_client.security import RENAMED
from kafka_protocol.errors import TidemarkError
from tidemark.records import settings
from tidemark.records.settings import translated

PEM_SETTINGS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
    ' username="ann" password="a \\"quoted\\"; word";',
    "ssl.truststore.location": "/certs/ca.pem",
    "ssl.truststore.type": "PEM",
    "ssl.keystore.location": "/certs/me.pem",
    "ssl.keystore.type": "pem",
    "ssl.endpoint.identification.algorithm": "",
}


def test_a_file_of_kafkas_tools_becomes_settings_of_librdkafka() -> None:
    found = translated(PEM_SETTINGS)
    assert found.settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'a "quoted"; word',
        "ssl.ca.location": "/certs/ca.pem",
        "ssl.certificate.location": "/certs/me.pem",
        "ssl.key.location": "/certs/me.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert found.without_effect == ()
    assert found.api_timeout_ms is None


def test_names_of_librdkafka_and_wrong_ones_continue_as_they_are() -> None:
    given = {"sasl.username": "ann", "ssl.ca.location": "/ca.pem", "fetch.mim.bytes": "1"}
    assert translated(given).settings == given


def test_what_is_said_otherwise_or_is_for_java_has_no_effect() -> None:
    found = translated(
        {"key.deserializer": "x", "max.poll.records": "5", "default.api.timeout.ms": "700"}
    )
    assert found.settings == {}
    assert found.without_effect == ("key.deserializer", "max.poll.records")
    assert found.api_timeout_ms == 700


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ssl.truststore.location": "/ca.jks"}, "give ssl.truststore.type=PEM"),
        (
            {"ssl.truststore.location": "/ca.p12", "ssl.truststore.type": "PKCS12"},
            "give ssl.truststore.type=PEM",
        ),
        ({"ssl.keystore.location": "/me.jks"}, "give ssl.keystore.type=PEM or PKCS12"),
        ({"sasl.jaas.config": "x required token='hush';"}, "must have username="),
        ({"default.api.timeout.ms": "soon"}, "a number of milliseconds"),
    ],
)
def test_a_value_that_only_java_reads_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(TidemarkError, match=words) as caught:
        translated(given)
    assert "hush" not in str(caught.value)


def test_a_key_store_may_be_pkcs12() -> None:
    given = {"ssl.keystore.location": "/me.p12", "ssl.keystore.type": "PKCS12"}
    assert translated(given).settings == {"ssl.keystore.location": "/me.p12"}


@pytest.mark.parametrize(
    "name", sorted({*settings._KEPT, *RENAMED.values(), *settings._SAME_MEANING.values()})
)
def test_each_name_that_continues_is_one_of_librdkafka(name: str) -> None:
    said = ""
    try:
        Consumer({"group.id": "any", name: "@", "log_level": 0}).close()
    except KafkaException as error:
        said = error.args[0].str()
    assert "No such configuration property" not in said


def test_a_producer_takes_the_credentials() -> None:
    given = {name: PEM_SETTINGS[name] for name in PEM_SETTINGS if not name.startswith("ssl.")}
    given["security.protocol"] = "SASL_PLAINTEXT"
    assert Producer({**translated(given).settings, "log_level": 0}) is not None
