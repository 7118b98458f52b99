"""The place of the log, as options say it: a cluster, a store, or both.

No value of a setting is ever part of a message here: settings may be secrets. Must not know: Spark.
"""

from collections.abc import Mapping
from typing import Final

from kafka_protocol.errors import TidemarkError
from kafka_protocol.wire.primitives import uuid_from_text
from pipeline.errors import OptionError
from pipeline.spark.options_names import (
    BOOTSTRAP,
    ISOLATION,
    LOG_START,
    RSM,
    TOPIC_ID,
    client_settings,
)
from pipeline.spark.options_values import boolean, one_of, partition_numbers, topic_texts
from pipeline.store import address_of_class, address_of_url
from pipeline.values import ClusterAddress, Isolation, StoreAddress, Where

_CLASS: Final = "remote.log.storage.manager.class.name"
_BUCKET: Final = "tidemark.bucket"


def where_of(options: Mapping[str, str]) -> Where:
    """Read the options (under their proper names) that say where the log is.

    Raises:
        OptionError: there is neither a cluster nor a store, or they are said wrongly.
    """
    bootstrap = options.get(BOOTSTRAP, "").strip()
    store = _store(options)
    if not bootstrap and store is None:
        raise OptionError(
            f"option {BOOTSTRAP} must be given (host:port), or {_BUCKET} (the URL of the store),"
            " to read what is in the remote tier without brokers"
        )
    return Where(
        cluster=ClusterAddress(bootstrap, client_settings(options)) if bootstrap else None,
        store=store,
        isolation=one_of(
            ISOLATION,
            options.get(ISOLATION, "read_uncommitted"),
            {one.name.lower(): one for one in Isolation},
        ),
        fail_on_data_loss=boolean("failOnDataLoss", options.get("failOnDataLoss", "true")),
        topic_ids=_topic_ids(options.get(TOPIC_ID, "{}")),
        log_starts=partition_numbers(LOG_START, options.get(LOG_START, "{}"), 0),
    )


def _store(options: Mapping[str, str]) -> StoreAddress | None:
    settings = {name[len(RSM) :]: value for name, value in options.items() if name.startswith(RSM)}
    class_name = options.get(_CLASS, "").strip()
    url = options.get(_BUCKET, "").strip()
    if url:
        if class_name:
            raise OptionError(f"give {_BUCKET} or {_CLASS}, not both: the URL says the class")
        return address_of_url(url, settings)
    if class_name:
        return address_of_class(class_name, settings)
    if settings:
        raise OptionError(
            f"options {RSM}* are given: give {_CLASS}, too, or say the store by {_BUCKET}"
        )
    return None


def _topic_ids(text: str) -> dict[str, bytes]:
    found = {}
    for topic, said in topic_texts(TOPIC_ID, text).items():
        try:
            found[topic] = uuid_from_text(said)
        except (ValueError, TidemarkError) as error:
            raise OptionError(f"option {TOPIC_ID}: {topic}: {error}") from None
    return found
