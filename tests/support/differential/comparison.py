"""Sends the same requests to Apache Kafka and to our broker and compares the answers by field.

What cannot be equal (ids, ports, wall-clock times, wording of messages) is replaced by a word that
says what it is; everything else must be the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from kafka_protocol.records.batch import iter_batches
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.raw_client import Closed, RawClient, build, header

Fields = Mapping[str, Any]
Body = bytes | Fields | Callable[["Side"], Fields]

CLOSED = "the connection was closed"
SILENT = "no answer came"
PATIENCE_S = 5.0
ANY_FIELDS = frozenset({"throttle_time_ms", "cluster_id", "port", "log_dir"})
TEXT_FIELDS = frozenset({"error_message", "documentation", "batch_index_error_message"})
"""Ours says in words what is wrong more often than Kafka."""
KNOWN_NUMBERS = {
    "producer_id": "an id",
    "base_offset": "an offset",
    "log_append_time_ms": "a time",
    "total_bytes": "some bytes",
    "usable_bytes": "some bytes",
}
"""They differ, but both sides know one or none does; -1 stands for none."""
SORT_FIELDS = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "resource_name",
    "partition_index",
    "partition",
    "index",
    "error_code",
)


@dataclass(frozen=True)
class Case:
    """One request, the same for both sides.

    Attributes:
        label: names the case in a report.
        body: fields, or what makes them for a side (ids differ), or raw bytes.
        chain: keeps its connection for the next case with the same chain.
    """

    label: str
    api_key: ApiKey
    version: int
    body: Body
    chain: str = ""


class Side:
    """One of the two brokers, and the names of what differs between them."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = name, port
        self.topic_ids: dict[str, bytes] = {}
        self._made_up_ids: set[bytes] = set()
        self.facts: dict[str, int] = {}
        self._chains: dict[str, RawClient] = {}

    def connect(self) -> RawClient:
        client = RawClient(SimpleNamespace(port=self.port))  # type: ignore[arg-type]
        client.socket.settimeout(PATIENCE_S)
        return client

    def close(self) -> None:
        for client in self._chains.values():
            client.socket.close()
        self._chains.clear()

    def topic_id(self, name: str) -> bytes:
        """The id of a topic here; made-up names get made-up ids, the same on both sides."""
        if name in self.topic_ids:
            return self.topic_ids[name]
        made_up = name.encode().ljust(16, b"?")[:16]
        self._made_up_ids.add(made_up)
        return made_up

    def learn_topics(self) -> None:
        with self.connect() as client:
            answer = client.ask(ApiKey.METADATA, 12, {"topics": None})
            self.topic_ids |= {topic.name: topic.topic_id for topic in answer.topics}

    def run(self, case: Case) -> Any:
        """The normalised answer, `CLOSED`, or None where no answer is due (acks=0)."""
        client = self._chains.get(case.chain) if case.chain else None
        if client is None:
            client = self.connect()
            if case.chain:
                self._chains[case.chain] = client
        try:
            return self._ask(client, case)
        except (Closed, ConnectionError):
            self._chains.pop(case.chain, None)
            return CLOSED
        except TimeoutError:
            self._chains.pop(case.chain, None)
            return SILENT
        finally:
            if not case.chain:
                client.socket.close()

    def _ask(self, client: RawClient, case: Case) -> Any:
        body = case.body(self) if callable(case.body) else case.body
        if not isinstance(body, bytes):
            message = codec.request(case.api_key)
            struct = build(message.cls, body)
            client.send_frame(
                header(case.api_key, case.version) + message.encode(struct, case.version)
            )
            if case.api_key is ApiKey.PRODUCE and struct.acks == 0:
                return None if self._still_serves(client) else CLOSED
        else:
            client.send_frame(header(case.api_key, case.version) + body)
        answer = client.answer(case.api_key, case.version)
        self._remember(answer)
        return self.normal(answer)

    def _still_serves(self, client: RawClient) -> bool:
        try:
            return client.ask(ApiKey.API_VERSIONS, 0, b"").error_code == 0
        except Closed:
            return False

    def _remember(self, answer: Any) -> None:
        if getattr(answer, "session_id", 0):
            self.facts["session_id"] = answer.session_id

    def normal(self, value: Any, field: str = "") -> Any:
        """The value with everything replaced that has a right to differ."""
        if isinstance(value, list):
            items = [self.normal(item) for item in value]
            if items and isinstance(items[0], dict):
                items.sort(key=lambda item: [str(item.get(name, "")) for name in SORT_FIELDS])
            return items
        if field in ANY_FIELDS:
            return "any"
        if field in TEXT_FIELDS:
            return "any"
        if field == "records":
            return None if value is None else self._batches(value)
        if isinstance(value, bytes):
            return self._id_name(value)
        if field == "session_id":
            return "a session" if value else 0
        if field in KNOWN_NUMBERS and value >= 0:
            return KNOWN_NUMBERS[field]
        slots = getattr(value, "__slots__", None)
        if slots is None:
            return value
        return {name: self.normal(getattr(value, name), name) for name in slots}

    def _id_name(self, value: bytes) -> str:
        if value == ZERO_UUID:
            return "no id"
        for name, known in self.topic_ids.items():
            if known == value:
                return f"id of {name}"
        return f"made-up id {value!r}" if value in self._made_up_ids else "another id"

    @staticmethod
    def _batches(records: Any) -> list[tuple[int, int, int, int]]:
        """Offset, last offset, leader epoch and size of each whole batch."""
        return [
            (head.base_offset, head.last_offset, head.partition_leader_epoch, head.size_bytes)
            for _, head in iter_batches(records)
        ]


def differences(kafka: Side, ours: Side, cases: Sequence[Case]) -> Iterator[str]:
    """One line for each field in which the answers differ."""
    for case in cases:
        wanted, got = kafka.run(case), ours.run(case)
        label = f"{case.api_key.name} v{case.version} {case.label}"
        for path, theirs, mine in compare(wanted, got):
            yield f"{label}: {path}: kafka={theirs!r} ours={mine!r}"


def compare(theirs: Any, mine: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Paths at which two normalised answers differ."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for name in theirs.keys() | mine.keys():
            yield from compare(theirs.get(name), mine.get(name), f"{path}.{name}")
    elif _have_names(theirs) and _have_names(mine):
        named = [{item["name"]: item for item in side} for side in (theirs, mine)]
        yield from compare(*named, path)
    elif isinstance(theirs, list) and isinstance(mine, list) and len(theirs) == len(mine):
        for index, (one, other) in enumerate(zip(theirs, mine, strict=True)):
            yield from compare(one, other, f"{path}[{index}]")
    elif theirs != mine:
        yield path, theirs, mine


def _have_names(items: Any) -> bool:
    """Whether it is a list of settings: compared by name, for a list may have some more."""
    return (
        isinstance(items, list)
        and bool(items)
        and all(isinstance(item, dict) and "value" in item for item in items)
    )
