"""The file of a seed: YAML that names topics, their configs and the files of their records.

    topics:
      - name: orders
        partitions: 3
        configs:
          max.message.bytes: 100000
        records: orders.jsonl

It is read as a tree of nodes, which know their lines.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pipeline.errors import need
from runtime.clock import SystemClock
from tidemark.seed.records import Record, SeedError, read_records, wrong

PARTITIONS_MAX: Final = 10_000
_TOPIC_FIELDS: Final = ("name", "partitions", "configs", "records")
_RETENTION: Final = "retention.ms"
_KEPT: Final = {_RETENTION: "-1"}
"""Seeded records are meant to stay: old ones stay where the file does not say another time."""


@dataclass(frozen=True, slots=True)
class SeedTopic:
    """One topic of a seed.

    Attributes:
        line: of the seed's file, from 1.
        record_files: in their order.
        record_count: in all of them.
        now_ms: when it was read.
        warning: which records the topic's retention will delete at once; "" for none.
    """

    line: int
    name: str
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    record_files: tuple[Path, ...] = ()
    record_count: int = 0
    now_ms: int = 0
    warning: str = ""

    def records(self) -> Iterator[tuple[Path, Record]]:
        """All records with their files, read again."""
        for path in self.record_files:
            for record in read_records(path, self.partitions, self.now_ms):
                yield path, record

    def looked_at(self) -> "SeedTopic":
        """It with what a look at each of its records has found.

        Raises:
            SeedError: one of them is wrong.
        """
        limit_ms = self._expired_before_ms()
        count = expired = 0
        oldest_ms = limit_ms
        for _, record in self.records():
            count += 1
            if record.timestamp_ms is not None and record.timestamp_ms < limit_ms:
                expired += 1
                oldest_ms = min(oldest_ms, record.timestamp_ms)
        warning = ""
        if expired:
            warning = (
                f"topic {self.name}: {expired} of {count} records are older than its"
                f" {_RETENTION}={self.configs[_RETENTION]} and will be deleted, the oldest is of"
                f" {_shown(oldest_ms)}; without {_RETENTION} all of them are kept"
            )
        return replace(self, record_count=count, warning=warning)

    def _expired_before_ms(self) -> int:
        """Records with an older timestamp go at once; 0: none go."""
        configs = self.configs
        text = configs.get(_RETENTION, "-1")
        is_by_append = configs.get("message.timestamp.type", "").lower() == "logappendtime"
        is_compacted = configs.get("cleanup.policy", "").strip() == "compact"
        if is_by_append or is_compacted or not text.isdecimal():  # -1, or the broker refuses it
            return 0
        return max(0, self.now_ms - int(text))


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """A seed that was read and checked to its last record."""

    path: Path
    topics: tuple[SeedTopic, ...]


def _shown(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return f"{ms} ms since 1970"


def read_plan(path: Path, now_ms: int | None = None) -> SeedPlan:
    """Read a seed, and look at each record of it.

    Args:
        path: of its file.
        now_ms: since 1970, what `-2h` is counted from; None: by the clock.

    Raises:
        SeedError: something is wrong with it; names file, line and field.
        MissingPackageError: there is nothing here that reads YAML.
    """
    need("seed", "yaml")
    import yaml  # not before it is needed

    try:
        root = yaml.compose(path.read_text(encoding="utf-8-sig"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise SeedError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise SeedError(f"{path}: not UTF-8: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise wrong(path, line, f"not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise SeedError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if root is None:
        raise SeedError(f"{path}: is empty; it must have a list of topics")
    reader = _Reader(path, SystemClock().wall_ms() if now_ms is None else now_ms)
    return SeedPlan(path, tuple(reader.topics(root)))


class _Reader:
    """Turns the nodes of a seed's file into values."""

    def __init__(self, path: Path, now_ms: int) -> None:
        self._path, self._now_ms = path, now_ms

    def topics(self, root: Any) -> Iterator[SeedTopic]:
        fields = self._mapping(root, "the seed", ("topics",))
        if "topics" not in fields:
            raise self._wrong(root, "topics: is missing")
        node = fields["topics"]
        if node.id != "sequence":
            raise self._wrong(node, "topics: must be a list, each of its entries with a name")
        names: dict[str, int] = {}
        for at, one in enumerate(node.value):
            topic = self._topic(one, f"topics[{at}]")
            if topic.name in names:
                text = f"topics[{at}].name: {topic.name} is in line {names[topic.name]} already"
                raise self._wrong(one, text)
            names[topic.name] = topic.line
            yield topic

    def _topic(self, node: Any, where: str) -> SeedTopic:
        fields = self._mapping(node, where, _TOPIC_FIELDS)
        if "name" not in fields:
            raise self._wrong(node, f"{where}.name: is missing")
        name = self._text(fields["name"], f"{where}.name")
        partitions = 1
        if "partitions" in fields:
            partitions = self._partitions(fields["partitions"], f"{where}.partitions")
        return SeedTopic(
            node.start_mark.line + 1,
            name,
            partitions,
            _KEPT | self._configs(fields.get("configs"), f"{where}.configs"),
            tuple(self._files(fields.get("records"), f"{where}.records")),
            now_ms=self._now_ms,
        ).looked_at()

    def _partitions(self, node: Any, where: str) -> int:
        text = self._text(node, where)
        if not text.isdecimal() or not 1 <= int(text) <= PARTITIONS_MAX:
            allowed = f"allowed is a whole number from 1 to {PARTITIONS_MAX}"
            raise self._wrong(node, f"{where}={text}: {allowed}")
        return int(text)

    def _configs(self, node: Any, where: str) -> dict[str, str]:
        if node is None:
            return {}
        return {
            name: self._text(value, f"{where}.{name}")
            for name, value in self._mapping(node, where, None).items()
        }

    def _files(self, node: Any, where: str) -> Iterator[Path]:
        if node is None:
            return
        for one in node.value if node.id == "sequence" else [node]:
            path = self._path.parent / self._text(one, where)
            if not path.is_file():
                raise self._wrong(one, f"{where}: there is no file {path}")
            yield path

    def _mapping(self, node: Any, where: str, allowed: tuple[str, ...] | None) -> dict[str, Any]:
        if node.id != "mapping":
            raise self._wrong(node, f"{where}: must be made of fields, such as name: orders")
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = self._text(key, f"a field of {where}")
            if allowed is not None and name not in allowed:
                there_are = ", ".join(allowed)
                raise self._wrong(key, f"{where}.{name}: no such field; there are {there_are}")
            if name in found:
                raise self._wrong(key, f"{where}.{name}: is there twice")
            found[name] = value
        return found

    def _text(self, node: Any, where: str) -> str:
        """The text of a plain value, as it is written; topics may be called 007 or yes."""
        if node.id != "scalar" or not node.value:
            raise self._wrong(node, f"{where}: must be a plain value")
        return str(node.value)

    def _wrong(self, node: Any, text: str) -> SeedError:
        return wrong(self._path, node.start_mark.line + 1, text)
