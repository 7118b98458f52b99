"""Why no record comes: the error code with which a partition's leader answers a Fetch.

librdkafka keeps retriable codes to itself and asks again. So when nothing came for some seconds,
one Fetch of this client asks for the record that is waited for. Its code is said at most once a
minute.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kafka_client.blocking import BlockingClient
from kafka_client.security import security_of
from kafka_protocol.errors import ErrorCode, TidemarkError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster.cluster import look, name_of

SILENT_S: Final = 5.0
"""So long nothing comes before the leader is asked, and asked again while it answers well."""
AGAIN_S: Final = 60.0
_ASKED_MAX: Final = 3
"""Partitions in one turn: the others most likely wait for the same."""
_TIMEOUT_S: Final = 5.0
_WAIT_MS: Final = 1_000
_FETCH_VERSION: Final = 12

Code = Callable[[str, int, int], int]
"""Asks the leader of (topic, partition) for an offset; its error code. Raises TidemarkError."""


def code_of_leader(bootstrap: str, settings: Mapping[str, str]) -> Code:
    """Make a question to the cluster; nothing is opened before it is called.

    Args:
        bootstrap: `host:port`, several with commas between.
        settings: of the client; TLS and SASL are those of the questions, too.
    """

    def code(topic: str, partition: int, offset: int) -> int:
        with BlockingClient(bootstrap, **security_of(settings)) as client:
            client.timeout_s = _TIMEOUT_S
            cluster = look(client, [topic])
            leader = cluster.brokers.get(cluster.topic(topic).leaders.get(partition, -1))
            if leader is None:
                return int(ErrorCode.LEADER_NOT_AVAILABLE)
            answer = client.ask(
                leader, ApiKey.FETCH, _FETCH_VERSION, _fetch(topic, partition, offset)
            )
            return int(answer.responses[0].partitions[0].error_code)

    return code


def _fetch(topic: str, partition: int, offset: int) -> object:
    request = codec.request(ApiKey.FETCH).cls
    asked = request.Topics.Partitions(
        partition=partition, fetch_offset=offset, partition_max_bytes=1
    )
    return request(
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        topics=[request.Topics(topic=topic, partitions=[asked])],
        forgotten_topics_data=[],
        rack_id="",
    )


class Waiting:
    """Says why nothing comes, as long as nothing comes."""

    def __init__(self, code: Code, say: Callable[[str], None]) -> None:
        """Nothing is asked before `silent` is called."""
        self._code, self._say = code, say
        self._next_s = SILENT_S

    def came(self) -> None:
        """Something came: what is said next is about another silence."""
        self._next_s = SILENT_S

    def silent(self, topic: str, offsets: Mapping[int, int], silent_s: float) -> None:
        """Nothing came for so many seconds; `offsets`: by partition, those that are waited for."""
        if silent_s < self._next_s:
            return
        self._next_s = silent_s + SILENT_S
        for partition, offset in list(offsets.items())[:_ASKED_MAX]:
            try:
                code = self._code(topic, partition, offset)
            except TidemarkError:
                return  # librdkafka says that no broker is reached, and may know more settings
            if code:
                self._next_s = silent_s + AGAIN_S
                self._say(
                    f"{topic}-{partition}: its leader answers for offset {offset} with code {code}"
                    f" ({name_of(code)}); trying again, `tidemark status` may say why"
                )
                return
