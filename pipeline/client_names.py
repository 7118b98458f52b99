"""Which settings of a Kafka client there are, and what becomes of each here.

There is no consumer, so most change nothing; a name that there is not is a typo. Must not know:
values.

Source: Apache Kafka 4.3, ConsumerConfig.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from pipeline.errors import OptionError

_USED: Final = ("bootstrap.servers", "isolation.level", "client.id", "security.protocol")
_SECURITY: Final = ("ssl.", "sasl.", "security.")
"""Families of settings, for `kafka_client.security`."""

CLIENT_IDLE: Final = (
    "group.instance.id", "group.protocol", "group.remote.assignor", "max.poll.records",
    "max.poll.interval.ms", "session.timeout.ms", "heartbeat.interval.ms", "client.dns.lookup",
    "partition.assignment.strategy", "metadata.max.age.ms", "auto.commit.interval.ms",
    "client.rack", "max.partition.fetch.bytes", "send.buffer.bytes", "receive.buffer.bytes",
    "fetch.min.bytes", "fetch.max.bytes", "fetch.max.wait.ms", "reconnect.backoff.ms",
    "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms", "check.crcs",
    "metrics.sample.window.ms", "metrics.num.samples", "metrics.recording.level",
    "metric.reporters", "enable.metrics.push", "socket.connection.setup.timeout.ms",
    "socket.connection.setup.timeout.max.ms", "connections.max.idle.ms", "exclude.internal.topics",
    "allow.auto.create.topics", "metadata.recovery.strategy", "share.acknowledgement.mode",
    "metadata.recovery.rebootstrap.trigger.ms", "request.timeout.ms", "default.api.timeout.ms",
)  # fmt: skip
_REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "give startingOffsets instead, or start of a scan",
    "enable.auto.commit": "nothing is committed; Spark keeps offsets in its checkpoint",
    "enable.partition.eof": "it is known here where a partition ends",
    "key.deserializer": "keys are bytes: decode them after they are read",
    "value.deserializer": "values are bytes: decode them after they are read",
    "interceptor.classes": "interceptors may change records",
}
_KNOWN: Final = (*_USED, *CLIENT_IDLE, *_REFUSED, "group.id")


def client_name(name: str, shown: str) -> str:
    """The name again, if there is such a setting.

    Args:
        name: in lower case.
        shown: what stands in front of it in messages.

    Raises:
        OptionError: there is none, or it is not the user's to set.
    """
    if name in _REFUSED:
        raise OptionError(f"{shown}{name} is not supported: {_REFUSED[name]}")
    if name in _KNOWN or name.startswith(_SECURITY):
        return name
    near = get_close_matches(name, _KNOWN, 1, 0.6)
    hint = f"; did you mean {shown.rpartition(' ')[2]}{near[0]}?" if near else ""
    raise OptionError(f"there is no {shown}{name[:100]}{hint}")


def why_idle(name: str) -> str | None:
    """Why a setting changes nothing; None: it does."""
    if name in CLIENT_IDLE:
        return "there is no consumer"
    return "no group is joined" if name == "group.id" else None
