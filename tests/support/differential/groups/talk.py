"""A conversation of several clients with one broker about groups, and what was said.

Requests about groups are not independent: a member gets its id from one answer and needs it in the
next request, and JoinGroup waits for others. So a story is a function that talks to one broker.
Both brokers are told each story, and the two transcripts must be equal.

Member ids differ, so each is written as its prefix and a number: `anna-#1` is the first id that
was given to the client `anna`.
"""

import re
import select
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.raw_client import Closed, RawClient, build, header
from tests.support.differential.comparison import CLOSED, SILENT, Side

QUIET_S = 0.08
"""How long no answer must come for a request to count as parked."""

PATIENCE_S = 2.0
"""After which a request counts as never answered."""

NO_ANSWER_YET = "no answer yet"
_UUID = re.compile(
    r"(.*)-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", re.DOTALL
)
_ANY = frozenset({"throttle_time_ms", "port", "error_message"})
_SORT_BY = ("member_id", "group_id", "name", "partition_index", "error_code")


@dataclass(frozen=True)
class Said:
    """One line of a transcript: who asked what in which version, and what came back."""

    who: str
    api_key: ApiKey
    version: int
    asked: Any
    answer: Any

    @property
    def label(self) -> str:
        return f"{self.who}: {self.api_key.name} v{self.version}"


@dataclass
class Member:
    """What a client knows about its place in the group; `early` are answers taken already."""

    member_id: str = ""
    generation: int = -1
    instance: str | None = None
    early: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class _Waiting:
    """A request that was not answered yet."""

    who: str
    api_key: ApiKey
    version: int
    asked: Any

    def said(self, asked: Any, answer: Any) -> Said:
        return Said(self.who, self.api_key, self.version, asked, answer)


def _lane(who: str, api_key: ApiKey) -> str:
    """JoinGroup and SyncGroup wait, and on one connection all else would wait behind them."""
    waits = api_key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
    return f"{who}, in the group" if waits else who


class Talk:
    """One story with one broker; `group` is a group id that no other story uses."""

    def __init__(self, side: Side, group: str) -> None:
        self.side, self.group = side, group
        self.transcript: list[Said] = []
        self.members: dict[str, Member] = {}
        self._clients: dict[str, RawClient] = {}
        self._waiting: dict[str, list[_Waiting]] = {}
        self._numbers: dict[str, dict[str, int]] = {}

    def close(self) -> None:
        """End all connections; what is asked next opens others."""
        for client in self._clients.values():
            client.socket.close()
        self._clients.clear()
        self._waiting.clear()

    def member(self, who: str) -> Member:
        return self.members.setdefault(who, Member())

    def ask(self, who: str, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request, and take its answer into the transcript."""
        self.send(who, api_key, version, **fields)
        return self._receive(_lane(who, api_key))

    def raw(self, who: str, api_key: ApiKey, version: int, body: bytes) -> Any:
        """Send a body that is made of bytes."""
        self._send(who, api_key, version, body, body)
        return self._receive(_lane(who, api_key))

    def send(self, who: str, api_key: ApiKey, version: int, **fields: Any) -> None:
        """Send a request; that of JoinGroup or SyncGroup is taken by `receive`."""
        message = codec.request(api_key)
        asked = known_fields(message.cls, fields)
        body = message.encode(build(message.cls, asked), version)
        self._send(who, api_key, version, body, asked)

    def _send(self, who: str, api_key: ApiKey, version: int, body: bytes, asked: Any) -> None:
        lane = _lane(who, api_key)
        client = self._clients.get(lane)
        if client is None:
            client = self._clients[lane] = self.side.connect()
            client.socket.settimeout(PATIENCE_S)
        self._waiting.setdefault(lane, []).append(_Waiting(who, api_key, version, asked))
        client.send_frame(header(api_key, version, client_id=who.encode()) + body)

    def receive(self, who: str) -> Any:
        """Take the oldest answer to a JoinGroup or SyncGroup."""
        if self.member(who).early:
            return self.member(who).early.pop(0)
        return self._receive(_lane(who, ApiKey.JOIN_GROUP))

    def _receive(self, lane: str) -> Any:
        due = self._waiting[lane].pop(0)
        answer: Any
        try:
            answer = self._clients[lane].answer(due.api_key, due.version)
            said = self.normal(answer)
        except (Closed, ConnectionError):
            answer = said = CLOSED
            self._clients.pop(lane).socket.close()
        except TimeoutError:
            answer = said = SILENT
            self._clients.pop(lane).socket.close()
        self.transcript.append(due.said(self.normal(due.asked), said))
        return answer

    def parked(self, who: str) -> None:
        """Note whether an answer is there already; it waits until the broker has the request."""
        if self.member(who).early:
            return  # it stands in the transcript
        lane = _lane(who, ApiKey.JOIN_GROUP)
        readable, _, _ = select.select([self._clients[lane].socket], [], [], QUIET_S)
        due = self._waiting[lane][0]
        said = "an answer is there" if readable else NO_ANSWER_YET
        self.transcript.append(due.said(self.normal(due.asked), said))

    def note(self, who: str, answer: Any, api_key: ApiKey, version: int) -> None:
        """Put an answer into the transcript that was asked for aside."""
        self.transcript.append(Said(who, api_key, version, "asked until it was so", answer))

    def hide(self, name: str, shown: Any = "any") -> None:
        """Put something else in the place of a field of the last answer."""
        last = self.transcript[-1]
        if isinstance(last.answer, dict):
            answer = last.answer | {name: shown}
            self.transcript[-1] = Said(last.who, last.api_key, last.version, last.asked, answer)

    def aside(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Ask without taking it into the transcript: to wait for something."""
        client = self._clients.get("(aside)")
        if client is None:
            client = self._clients["(aside)"] = self.side.connect()
        return client.ask(api_key, version, known_fields(codec.request(api_key).cls, fields))

    def topic(self, name: str, **more: Any) -> dict[str, Any]:
        """The topic by name and by id: each version takes what it knows."""
        return {"name": name, "topic_id": self.side.topic_id(name), **more}

    def normal(self, value: Any, name: str = "") -> Any:
        """The value with what has a right to differ replaced."""
        if isinstance(value, list | tuple):
            items = [self.normal(item) for item in value]
            if items and isinstance(items[0], dict) and name != "":
                items.sort(key=lambda item: [str(item.get(key, "")) for key in _SORT_BY])
            return items
        if name in _ANY:
            return "any"
        if name == "error_code":
            return error_name(value)
        if name == "topic_id" and isinstance(value, bytes):
            return self._topic_name(value)
        if isinstance(value, str):
            return self._member_name(value)
        if isinstance(value, bytes | bytearray | memoryview):
            data = bytes(value)
            return data if len(data) < 200 else f"{len(data)} bytes"
        if isinstance(value, Mapping):
            return {key: self.normal(item, key) for key, item in value.items()}
        slots = getattr(value, "__slots__", None)
        if slots is None:
            return value
        return {key: self.normal(getattr(value, key), key) for key in slots}

    def _member_name(self, text: str) -> str:
        found = _UUID.fullmatch(text)
        if found is None:
            return text if len(text) < 200 else f"{text[:20]}... {len(text)} characters"
        prefix, number = found.groups()
        numbers = self._numbers.setdefault(prefix, {})
        return f"{prefix}-#{numbers.setdefault(number, len(numbers) + 1)}"

    def _topic_name(self, value: bytes) -> str:
        if value == ZERO_UUID:
            return "no id"
        names = {known: name for name, known in self.side.topic_ids.items()}
        return f"id of {names[value]}" if value in names else "an unknown id"


def known_fields(cls: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without those that the class does not have, in what it holds as well."""
    made: dict[str, Any] = {}
    for name, value in fields.items():
        if name not in cls.__slots__:
            continue
        nested = getattr(cls, "".join(word.capitalize() for word in name.split("_")), None)
        if nested is not None and isinstance(value, list) and value and isinstance(value[0], dict):
            made[name] = [known_fields(nested, item) for item in value]
        else:
            made[name] = value
    return made


def error_name(code: int) -> str:
    """The number with Kafka's name: what a reader of the transcript wants."""
    try:
        return f"{code} {ErrorCode(code).name}"
    except ValueError:
        return f"{code}"


def subscription(*topics: str, version: int = 0, user_data: bytes | None = None) -> bytes:
    """A consumer's subscription, as the clients write it."""
    data = struct.pack(">hi", version, len(topics))
    for topic in topics:
        data += struct.pack(">h", len(topic)) + topic.encode()
    data += struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data))
    return data + (user_data or b"") + (struct.pack(">i", 0) if version >= 1 else b"")
