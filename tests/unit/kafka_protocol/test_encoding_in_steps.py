"""A message that is encoded in steps has the bytes of one that is encoded at once."""

from typing import Any

import pytest

from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from runtime.work import at_once

DESCRIBE = response(ApiKey.DESCRIBE_CONFIGS)
METADATA = response(ApiKey.METADATA)


def configs(count: int) -> Any:
    result = DESCRIBE.cls.Results
    entry = result.Configs(name="retention.ms", value="1000", read_only=False, config_source=1)
    return DESCRIBE.cls(
        results=[
            result(resource_type=2, resource_name=f"topic-{number}", configs=[entry] * 20)
            for number in range(count)
        ]
    )


@pytest.mark.parametrize("version", range(1, DESCRIBE.max_version + 1))
def test_nested_arrays(version: int) -> None:
    answer = configs(300)
    steps = DESCRIBE.encode_steps(answer, version)
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            parts = end.value
            break
        pauses += 1
    whole = DESCRIBE.encode(answer, version)
    assert b"".join(parts) == whole
    assert pauses >= len(whole) // (40 << 10) > 1


@pytest.mark.parametrize("version", range(METADATA.max_version + 1))
def test_several_arrays_and_fields_behind_them(version: int) -> None:
    cls = METADATA.cls
    answer = cls(
        cluster_id="cluster",
        controller_id=7,
        brokers=[cls.Brokers(node_id=n, host="host", port=n) for n in range(3)],
        topics=[cls.Topics(name=f"topic-{number}") for number in range(2_000)],
    )
    parts = at_once(METADATA.encode_steps(answer, version))
    assert b"".join(parts) == METADATA.encode(answer, version)


def test_a_message_without_arrays_and_one_with_empty_ones() -> None:
    heartbeat = response(ApiKey.HEARTBEAT)
    assert b"".join(at_once(heartbeat.encode_steps(heartbeat.cls(), 4))) == heartbeat.encode(
        heartbeat.cls(), 4
    )
    assert b"".join(at_once(DESCRIBE.encode_steps(configs(0), 4))) == DESCRIBE.encode(configs(0), 4)
