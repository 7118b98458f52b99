"""A controller's log and snapshots as Apache Kafka's own tools read them: no code of ours."""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kafka.tools import kafka_tool
from tests.support.quorum.committed import parse_name
from tests.support.quorum.history import TopicState

COMPLAINTS = ("mismatches", "corrupt", "isvalid: false", "Exception", "Could not", "not ending")
_LINE = re.compile(r"\| offset: (\d+) .* payload: (\{.*)")
_IGNORED = " ERROR Ignoring control record with type "
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_SHELL_TRIES = 5
_TOPIC_RESOURCE = 2


@dataclass
class _Topic:
    name: str
    partitions: int = 0


def dumped_topics(metadata: Path, end_offset: int) -> dict[str, TopicState]:
    """Topics below `end_offset` (exclusive), by `dump-log` over the newest snapshot and the log."""
    snapshots = sorted(parse_name(path) for path in metadata.glob("*.checkpoint"))
    usable = [one for one in snapshots if 0 < one.end_offset <= end_offset]
    state = _Dumped()
    start = 0
    if usable:
        start = usable[-1].end_offset
        for _, payload in _dump([metadata / usable[-1].file_name]):
            state.add(payload)
    for offset, payload in _dump(sorted(metadata.glob("*.log"))):
        if start <= offset < end_offset:
            state.add(payload)
    return state.topics()


def _dump(files: list[Path]) -> list[tuple[int, dict[str, Any]]]:
    named = ",".join(str(file) for file in files)
    shown = kafka_tool("dump-log", "--cluster-metadata-decoder", "--files", named)
    for complaint in COMPLAINTS:
        assert complaint not in shown, shown[max(shown.index(complaint) - 300, 0) :][:1000]
    found = (_LINE.match(line) for line in shown.splitlines())
    return [(int(one[1]), json.loads(one[2])) for one in found if one]


class _Dumped:
    """Topics, partitions and configs of records that are read one after the other."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._transaction: list[dict[str, Any]] | None = None

    def add(self, payload: dict[str, Any]) -> None:
        kind = payload["type"]
        if kind == "BEGIN_TRANSACTION_RECORD":
            self._transaction = []
        elif kind in ("END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD"):
            waiting, self._transaction = self._transaction or [], None
            for one in waiting if kind == "END_TRANSACTION_RECORD" else []:
                self._apply(one)
        elif self._transaction is not None:
            self._transaction.append(payload)
        else:
            self._apply(payload)

    def _apply(self, payload: dict[str, Any]) -> None:
        data: Mapping[str, Any] = payload["data"]
        match payload["type"]:
            case "TOPIC_RECORD":
                self._topics[data["topicId"]] = _Topic(data["name"])
            case "PARTITION_RECORD":
                self._topics[data["topicId"]].partitions += 1
            case "REMOVE_TOPIC_RECORD":
                self._configs.pop(self._topics.pop(data["topicId"]).name, None)
            case "CONFIG_RECORD" if data["resourceType"] == _TOPIC_RESOURCE:
                configs = self._configs.setdefault(data["resourceName"], {})
                if data["value"] is None:
                    configs.pop(data["name"], None)
                else:
                    configs[data["name"]] = data["value"]

    def topics(self) -> dict[str, TopicState]:
        return {
            topic.name: TopicState(
                base64.urlsafe_b64decode(topic_id + "=="),
                topic.partitions,
                tuple(sorted(self._configs.get(topic.name, {}).items())),
            )
            for topic_id, topic in self._topics.items()
        }


def shell_topics(snapshot: Path) -> set[str]:
    """Names of topics, as `metadata-shell` shows them of a snapshot that has some.

    The shell may carry the command out before its own loader has published what it read, and then
    shows nothing: it is asked again.
    """
    for _ in range(_SHELL_TRIES):
        if names := _shell_topics(snapshot):
            return names
    return set()


def _shell_topics(snapshot: Path) -> set[str]:
    shown = kafka_tool("metadata-shell", "--snapshot", str(snapshot), "ls", "/image/topics/byName")
    # It says of each control record, on stderr, that it ignores it; and it sets the text's colour.
    lines = [line for line in _ESCAPE.sub("", shown).splitlines() if _IGNORED not in line]
    return {name for line in lines for name in line.split()}
