"""Topics with errors among those whose records are regions, against a whole answer encoded."""

from typing import Any

import pytest

from broker.testing.faults.fetch_splice import splice
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey

MESSAGE = codec.response(ApiKey.FETCH)


def answer(*topics: tuple[str, int]) -> Any:
    cls = MESSAGE.cls
    return cls(
        throttle_time_ms=3,
        session_id=5,
        responses=[
            cls.Responses(
                topic=name,
                topic_id=name.encode().ljust(16, b"."),
                partitions=[
                    cls.Responses.Partitions(partition_index=at, error_code=code, records=b"data")
                    for at in range(2)
                ],
            )
            for name, code in topics
        ],
    )


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("served", [0, 1, 130])
@pytest.mark.parametrize("failed", [1, 128])
def test_a_spliced_answer_is_that_of_all_topics(version: int, served: int, failed: int) -> None:
    good = [(f"good{at}", 0) for at in range(served)]
    bad = [(f"bad{at}", 6) for at in range(failed)]
    parts = MESSAGE.encode_parts(answer(*good), version)
    spliced = splice(parts, answer(*bad), version)
    assert b"".join(spliced) == MESSAGE.encode(answer(*bad, *good), version)  # type: ignore[arg-type]
    assert spliced[1:] == parts[1:], "regions stay as they are"
