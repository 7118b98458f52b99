"""Another implementation of the schemas (kio) reads what we write, and writes the same bytes."""

from io import BytesIO
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kafka_protocol.wire.api_keys import PRIVATE, ApiKey
from kafka_protocol.wire.codec import request, response
from tests.support.samples.protocol import whole


def without_ours(value: Any) -> Any:
    """Kafka's fields only: that implementation fails on a tagged field which Kafka skips."""
    for topic in getattr(value, "topics", ()):
        if hasattr(topic, "remote_data"):
            topic.remote_data = 0
        for partition in getattr(topic, "partitions", ()):
            for name in ("restore_end", "remote_end", "local_end"):
                if hasattr(partition, name):
                    setattr(partition, name, -1)
    if hasattr(value, "keeps_directories"):
        value.keeps_directories = 0
    if hasattr(value, "free_descriptors"):
        value.free_descriptors = -1
    if hasattr(value, "is_missing_directory"):
        value.replicas, value.is_missing_directory = [], 0
        value.remote_store_class = value.remote_store_place = None
    if hasattr(value, "used_producer_id"):
        value.used_producer_id = -1
    if hasattr(value, "forgets"):
        value.forgets = 0
    if hasattr(value, "metadata_end"):
        value.metadata_end = -1
    return value


@pytest.mark.parametrize("key", sorted(set(ApiKey) - PRIVATE), ids=lambda key: key.name)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(request, load_request_schema), (response, load_response_schema)],
    ids=["request", "response"],
)
def test_all_versions_agree_with_another_implementation(
    key: ApiKey, ours: Any, theirs: Any
) -> None:
    schema = ours(key)
    for version in range(schema.min_version, schema.max_version + 1):
        encoded = schema.encode(without_ours(whole(schema, version)), version)
        entity = theirs(int(key), version)
        value, size = entity_reader(entity)(encoded, 0)
        assert size == len(encoded)
        written = BytesIO()
        entity_writer(entity)(written, value)
        assert written.getvalue() == encoded
