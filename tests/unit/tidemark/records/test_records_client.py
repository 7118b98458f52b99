"""What a command says where brokers do not answer or refuse; a fake in place of librdkafka."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_client.blocking import ClusterError, UnreachableError
from tidemark.records.client import RecordsClient
from tidemark.records.settings import Translated

REFUSED = (
    "127.0.0.1:9/bootstrap: Connect to ipv4#127.0.0.1:9 failed: Connection refused"
    " (after 0ms in state CONNECT)"
)
HASTE = Translated({}, 1, ())


class FakeClient:
    """Answers with topics, or raises; tells of a connection as the real one does, when polled."""

    def __init__(
        self, settings: dict[str, Any], answers: list[Any], said: KafkaError | None = None
    ) -> None:
        self.settings, self.answers, self.said = settings, answers, said
        self.asked: list[str | None] = []

    def poll(self, timeout_s: float) -> None:
        if self.said is not None:
            self.settings["error_cb"](self.said)
            self.settings["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN))

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> Any:
        self.asked.append(topic)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return SimpleNamespace(topics=answer)


def topics(**found: int | KafkaError) -> dict[str, Any]:
    return {
        name: SimpleNamespace(error=None, partitions=dict.fromkeys(range(count)))
        if isinstance(count, int)
        else SimpleNamespace(error=count, partitions={})
        for name, count in found.items()
    }


def client(*answers: Any, said: KafkaError | None = None, given: Translated = HASTE) -> Any:
    make: Callable[[dict[str, Any]], Any] = lambda settings: FakeClient(  # noqa: E731
        settings, list(answers), said
    )
    return RecordsClient(make, "127.0.0.1:9", given, {})


def test_a_broker_that_is_not_there_is_one_line_with_address_and_reason() -> None:
    refused = KafkaError(KafkaError._TRANSPORT, REFUSED)
    one = client(KafkaError(KafkaError._TRANSPORT), said=refused)
    with pytest.raises(UnreachableError) as caught:
        one.partitions("orders")
    said = str(caught.value)
    assert said.startswith(
        "no broker answers at 127.0.0.1:9 (Connect to ipv4#127.0.0.1:9 failed: Connection refused)"
    )
    assert "--bootstrap-server or TIDEMARK_BOOTSTRAP_SERVER" in said
    assert "\n" not in said


def test_one_that_is_starting_is_asked_again() -> None:
    transport = KafkaError(KafkaError._TRANSPORT)
    given = Translated({}, 3_000, ())
    one = client(transport, transport, topics(orders=2), given=given)
    assert one.partitions("orders") == [0, 1]


def test_refused_credentials_are_not_retried_nor_hidden_by_later_errors() -> None:
    said = KafkaError(KafkaError._AUTHENTICATION, "127.0.0.1:9/bootstrap: wrong password")
    one = client(KafkaError(KafkaError._TRANSPORT), said=said, given=Translated({}, 3_000, ()))
    one.client.poll(0)
    one.client.said = KafkaError(KafkaError._TRANSPORT, REFUSED)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9: wrong password"):
        one.partitions("orders")
    assert len(one.client.asked) == 1


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "127.0.0.1:9/1: Disconnected (after 3ms in state UP)",
            r"security\.protocol of --command-",
        ),
        (None, "it takes the connection and says nothing"),
    ],
)
def test_a_broker_that_ends_the_connection_is_not_one_that_says_nothing(
    said: str | None, words: str
) -> None:
    heard = None if said is None else KafkaError(KafkaError._TRANSPORT, said)
    with pytest.raises(UnreachableError, match=words):
        client(KafkaError(KafkaError._TRANSPORT), said=heard).partitions("orders")


def test_an_unknown_topic_is_named_with_the_likely_one_and_not_created() -> None:
    one = client(topics(orders=1, payments=1))
    with pytest.raises(ClusterError, match=r"no topic ordrs at .*; did you mean orders"):
        one.partitions("ordrs")
    assert one.client.asked == [None]


def test_a_topic_that_a_broker_makes_is_waited_for() -> None:
    begun = topics(new=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    making = topics(new=KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    one = client(begun, making, topics(new=3), given=Translated({}, 3_000, ()))
    assert one.partitions_made("new") == [0, 1, 2]
    assert one.client.asked == ["new"] * 3


def test_a_topic_that_no_broker_makes_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.records.client._MADE_S", -1.0)
    unknown = topics(new=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(ClusterError, match="there is no topic new at"):
        client(unknown, topics(orders=1)).partitions_made("new")


def test_a_topic_that_may_not_be_seen_is_refused_with_the_reason() -> None:
    denied = topics(orders=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(ClusterError, match=r"topic orders at 127\.0\.0\.1:9: .*authorization"):
        client(denied).partitions("orders")


def test_a_partition_that_is_not_there_is_told_which_are() -> None:
    one = client(topics(orders=3))
    one.check_partition("orders", [0, 1, 2], 2)
    with pytest.raises(ClusterError, match="no partition 3 of orders: it has partitions 0 to 2"):
        one.check_partition("orders", [0, 1, 2], 3)
    with pytest.raises(ClusterError, match="it has partition 0 only"):
        one.check_partition("orders", [0], 1)


def test_a_setting_that_there_is_not_is_one_line() -> None:
    def refuse(settings: dict[str, Any]) -> Any:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, 'No such property: "foo"'))

    with pytest.raises(ClusterError, match='settings of the client: No such property: "foo"'):
        RecordsClient(refuse, "127.0.0.1:9", HASTE, {})


def test_a_record_that_nobody_answers_for_is_told_with_address_and_reason() -> None:
    one = client(topics(orders=1), said=KafkaError(KafkaError._TRANSPORT, REFUSED))
    late = KafkaError(KafkaError._MSG_TIMED_OUT)
    assert one.explain(late) == "no broker at 127.0.0.1:9 has acknowledged it in time"
    one.client.poll(0)
    assert one.explain(late).endswith(
        "in time: Connect to ipv4#127.0.0.1:9 failed: Connection refused"
    )
    assert one.explain(KafkaError(KafkaError.INVALID_RECORD)).startswith("Broker: ")


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.MSG_SIZE_TOO_LARGE,  # of the client, and of a broker: max.message.bytes
        KafkaError.RECORD_LIST_TOO_LARGE,  # of a broker: segment.bytes
    ],
)
def test_what_is_too_large_is_told_with_each_limit(code: int) -> None:
    said = client(topics(orders=1)).explain(KafkaError(code))
    limits = (
        "max.message.bytes and segment.bytes of the topic",
        "-X message.max.bytes=",
        "batch.size",
    )
    assert [one for one in limits if one not in said] == []


def test_the_command_wins_over_the_user_and_the_user_over_quiet_defaults() -> None:
    given = Translated({"client.id": "mine", "enable.partition.eof": "false"}, None, ())
    one = RecordsClient(
        lambda settings: FakeClient(settings, []), "h:1", given, {"enable.partition.eof": True}
    )
    found = one.client.settings
    assert (found["client.id"], found["enable.partition.eof"]) == ("mine", True)
    assert (found["bootstrap.servers"], found["log_level"]) == ("h:1", 0)
