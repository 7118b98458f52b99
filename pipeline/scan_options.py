"""The options of a scan, and the log that it names. Must not know: Arrow."""

import logging
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, TypedDict

from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.primitives import uuid_from_text
from pipeline.client_names import client_name, why_idle
from pipeline.errors import OptionError
from pipeline.store import address_of_class, address_of_url
from pipeline.values import ClusterAddress, Isolation, StoreAddress, Where

log = logging.getLogger(__name__)


class ScanOptions(TypedDict, total=False):
    """Further options of a scan.

    Attributes:
        isolation: `read_uncommitted` (default) or `read_committed`.
        partitions: numbers; default: all of the topic.
        storage: settings of the storage plugin (`rsm.config.*`, prefix removed), for what the URL
            does not say. With `class` among them the plugin's class name.
        client: settings of the Kafka client; `isolation.level` is meant as `isolation`.
        fail_on_data_loss: False: offsets that are gone are skipped, counted and logged.
        topic_id: of a bucket that has several topics of this name.
        log_start: of a bucket that is read alone: partition to offset; nothing below is read.
        batch_bytes: about the size of one record batch.
    """

    isolation: str
    partitions: Sequence[int]
    storage: Mapping[str, str]
    client: Mapping[str, str]
    fail_on_data_loss: bool
    topic_id: str
    log_start: Mapping[int, int]
    batch_bytes: int


_TYPES: Final[Mapping[str, tuple[type, str]]] = MappingProxyType(
    {
        "isolation": (str, "is read_uncommitted or read_committed"),
        "partitions": (object, "is a list of numbers"),
        "storage": (Mapping, "is a mapping of names to values"),
        "client": (Mapping, "is a mapping of names to values"),
        "fail_on_data_loss": (bool, "is True or False"),
        "topic_id": (str, "are the 22 characters of an id"),
        "log_start": (Mapping, "is {partition: offset}"),
        "batch_bytes": (int, "is a number from 1 on"),
    }
)


def where_of(
    bootstrap_servers: str | None, bucket: str | None, topic: str, options: ScanOptions
) -> Where:
    """The log that these options name.

    Raises:
        OptionError: neither cluster nor bucket, or a wrong option.
    """
    options = checked(options)
    client = _client(options.get("client", {}), bootstrap_servers)
    isolation = _isolation(options.get("isolation"), client.pop("isolation.level", None))
    if bootstrap_servers is None and bucket is None:
        raise OptionError("say where the log is: bootstrap_servers='host:port' or bucket='URL'")
    cluster = None
    if bootstrap_servers is not None:
        if options.get("log_start"):
            raise OptionError(
                "log_start is for a bucket that is read alone: leave it out, brokers know where"
                " logs start"
            )
        cluster = ClusterAddress(bootstrap_servers, client)
    return Where(
        cluster=cluster,
        store=_store(bucket, options.get("storage", {})),
        isolation=isolation,
        fail_on_data_loss=options.get("fail_on_data_loss", True),
        topic_ids=_topic_ids(topic, options.get("topic_id")),
        log_starts=_log_starts(topic, options.get("log_start", {})),
    )


def checked(options: ScanOptions) -> ScanOptions:
    """The options that are given: None is meant as the default.

    Raises:
        OptionError: there is no such option, or its value is of another type.
    """
    for name, value in options.items():
        if name not in _TYPES:
            near = get_close_matches(name, _TYPES, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise OptionError(f"scan has no option {name[:100]!r}{hint}")
        kind, allowed = _TYPES[name]
        is_bool = isinstance(value, bool)
        if value is not None and (not isinstance(value, kind) or is_bool != (kind is bool)):
            said = type(value).__name__  # the value itself may be a secret
            raise OptionError(f"{name} is of type {said}: allowed {allowed}")
    given: Any = {name: value for name, value in options.items() if value is not None}
    if given.get("batch_bytes", 1) < 1:
        raise OptionError(f"batch_bytes={given['batch_bytes']}: allowed is a number from 1 on")
    found: ScanOptions = given
    return found


def isolation_of(name: str) -> Isolation:
    """The isolation level of that name.

    Raises:
        OptionError: there is none.
    """
    try:
        return Isolation[name.upper()]
    except KeyError:
        raise OptionError(
            f"isolation={name[:100]!r}: allowed is read_uncommitted or read_committed"
        ) from None


def _client(given: Mapping[str, str], bootstrap: str | None) -> dict[str, str]:
    """The settings under their proper names, without those that change nothing."""
    found = {}
    for written, value in given.items():
        name = client_name(written.strip().lower(), "client setting ")
        if name == "bootstrap.servers":
            if value.strip() != bootstrap:
                raise OptionError(
                    "client setting bootstrap.servers: brokers are named by bootstrap_servers in a"
                    " scan, --bootstrap-server on the command line"
                )
            continue
        reason = why_idle(name)
        if reason is None:
            found[name] = value
        else:
            log.warning("client setting %s has no effect: %s", name, reason)
    return found


def _isolation(given: str | None, of_client: str | None) -> Isolation:
    """The isolation level that both give; without one all records are read."""
    said = {isolation_of(one) for one in (given, of_client) if one is not None}
    if len(said) > 1:
        raise OptionError(
            f"isolation={given} contradicts the client setting isolation.level={of_client}"
        )
    return said.pop() if said else Isolation.READ_UNCOMMITTED


def _store(bucket: str | None, settings: Mapping[str, str]) -> StoreAddress | None:
    own = {name: value for name, value in settings.items() if name != "class"}
    class_name = settings.get("class")
    if bucket is not None:
        if class_name:
            return address_of_class(class_name, {**address_of_url(bucket).settings, **own})
        return address_of_url(bucket, own)
    if class_name:
        return address_of_class(class_name, own)
    if own:
        raise OptionError("storage settings need a store: name it by bucket, or by 'class'")
    return None


def _log_starts(topic: str, starts: Mapping[Any, Any]) -> dict[TopicPartition, int]:
    for number, offset in starts.items():
        if not isinstance(number, int) or not isinstance(offset, int) or offset < 0:
            raise OptionError(
                f"log_start={{{number!r}: {offset!r}}}: allowed is {{partition: offset}}, both"
                " numbers from 0 on"
            )
    return {TopicPartition(topic, number): offset for number, offset in starts.items()}


def _topic_ids(topic: str, text: str | None) -> dict[str, bytes]:
    if text is None:
        return {}
    try:
        return {topic: uuid_from_text(text)}
    except ValueError:
        raise OptionError(
            f"topic_id={text[:100]!r}: allowed are the 22 characters of an id"
        ) from None
