"""Requests with every field set, of topic `TOPIC` and partition `PARTITION`, in any version."""

from typing import Any

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.samples.protocol import whole

TOPIC, PARTITION = "text", 7
_TOPIC_RESOURCE = 2


def named_request(key: ApiKey, version: int) -> Any:
    """A request about the topic and its partition, where the API names any."""
    request = whole(codec.request(key), version)
    for resource in getattr(request, "resources", ()):
        resource.resource_type = _TOPIC_RESOURCE
    for topic in getattr(request, "topics", None) or ():
        if hasattr(topic, "remote_data"):
            topic.remote_data = 0  # ours alone
    if hasattr(request, "session_epoch"):
        request.session_id, request.session_epoch = 0, -1
    return request


def codes_of(value: Any) -> list[int]:
    """All error codes in an answer of any library that is not 0, in the order of its fields."""
    found: list[int] = []
    names = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", {})
    for name in names:
        content = getattr(value, name)
        if name == "error_code":
            found += [int(content)] if content else []
        elif isinstance(content, list | tuple):
            for one in content:
                found += codes_of(one)
        elif getattr(content, "_fields", None):
            found += codes_of(content)
    return found
