"""confluent_kafka's clients with settings that fit a test; imported when one is asked for."""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidemark.embedded.errors import BrokerError
from tidemark.embedded.topics import NewTopic

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

__tracebackhide__ = True
_QUICK: Final = {
    # A broker that was restarted is found again at once.
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
}
_PRODUCER: Final = _QUICK | {
    "linger.ms": 0,
    "topic.metadata.refresh.fast.interval.ms": 50,
}
_CONSUMER: Final = _QUICK | {
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 100,
    # What a test produces next is seen at once, and its topics, too.
    "fetch.error.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 5_000,
}
_WITH_UNDERSCORES: Final = frozenset(
    {"log_level", "on_commit", "on_delivery", "ssl_ca", "ssl_certificate", "ssl_key"}
)
"""Settings that take a callback, beside those whose name ends so, such as `error_cb`."""
_GROUPLESS: Final = "tidemark-no-group"
TOPIC_S_MAX: Final = 30.0
_PROBE: Final = "tidemark-probe"
_POLL_S: Final = 0.05


def producer(bootstrap_servers: str, config: Mapping[str, Any]) -> "Producer":
    """Make a producer."""
    from confluent_kafka import Producer

    return Producer(_PRODUCER | {"bootstrap.servers": bootstrap_servers} | dotted(config))


def consumer(bootstrap_servers: str, group_id: str | None, config: Mapping[str, Any]) -> "Consumer":
    """Make a consumer; one without a group is given partitions by `assign` and commits nothing."""
    from confluent_kafka import Consumer

    own: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "group.id": group_id}
    if group_id is None:
        own |= {"group.id": _GROUPLESS, "enable.auto.commit": False}
    return Consumer(_CONSUMER | own | dotted(config))


def admin(bootstrap_servers: str, config: Mapping[str, Any]) -> "AdminClient":
    """Make an admin client."""
    from confluent_kafka.admin import AdminClient

    return AdminClient(_QUICK | {"bootstrap.servers": bootstrap_servers} | dotted(config))


def dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the client; one may be written with `_` for `.`, as a keyword."""
    return {
        name if _has_underscores(name) else name.replace("_", "."): value
        for name, value in config.items()
    }


def _has_underscores(name: str) -> bool:
    return name in _WITH_UNDERSCORES or name.endswith("_cb")


def create_topics(
    client: "AdminClient", topics: Iterable[NewTopic], *, may_exist: bool = True
) -> None:
    """Create topics.

    Args:
        client: asks for it.
        topics: those to create, with the default replication factor.
        may_exist: one that is there already is left as it is.

    Raises:
        BrokerError: one cannot be created.
    """
    from confluent_kafka import KafkaError, KafkaException, cimpl

    wanted = [cimpl.NewTopic(one.name, one.partitions, config=dict(one.configs)) for one in topics]
    for name, created in client.create_topics(wanted, request_timeout=TOPIC_S_MAX).items():
        try:
            created.result(TOPIC_S_MAX)
        except KafkaException as error:
            if not may_exist or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise BrokerError(f"cannot create the topic {name}: {error}") from None


def wait_for_brokers(client: "AdminClient", count: int) -> None:
    """Wait until so many brokers may have replicas: their controller hears them.

    Raises:
        BrokerError: there are fewer, or there is no answer, for half a minute.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewTopic

    ends_at = time.monotonic() + TOPIC_S_MAX
    while True:
        wanted = [NewTopic(_PROBE, 1, count)]
        (asked,) = client.create_topics(
            wanted, validate_only=True, request_timeout=TOPIC_S_MAX
        ).values()
        try:
            asked.result(TOPIC_S_MAX)
        except KafkaException as error:
            if time.monotonic() > ends_at:
                raise BrokerError(f"not all {count} brokers are back: {error}") from None
            time.sleep(_POLL_S)
        else:
            return


def delete_topic(client: "AdminClient", name: str) -> None:
    """Delete a topic; fine where the test has done so.

    Raises:
        BrokerError: it cannot be deleted.
    """
    from confluent_kafka import KafkaError, KafkaException

    for deleted in client.delete_topics([name], request_timeout=TOPIC_S_MAX).values():
        try:
            deleted.result(TOPIC_S_MAX)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise BrokerError(f"cannot delete the topic {name}: {error}") from None
