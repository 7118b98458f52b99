"""The file of a seed: YAML that names topics, their configs and the files of their records.

    topics:
      - name: orders
        partitions: 3
        configs:
          retention.ms: 86400000
        records: orders.jsonl

It is read as a tree of nodes, which know their lines.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pipeline.errors import need
from tidemark.seed.records import Record, SeedError, read_records, wrong

PARTITIONS_MAX: Final = 10_000
_TOPIC_FIELDS: Final = ("name", "partitions", "configs", "records")


@dataclass(frozen=True, slots=True)
class SeedTopic:
    """One topic of a seed.

    Attributes:
        line: of the seed's file, from 1.
        record_files: in their order.
        record_count: in all of them.
    """

    line: int
    name: str
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    record_files: tuple[Path, ...] = ()
    record_count: int = 0

    def records(self) -> Iterator[tuple[Path, Record]]:
        """All records with their files, read anew."""
        for path in self.record_files:
            for record in read_records(path, self.partitions):
                yield path, record


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """A seed that was read and checked to its last record."""

    path: Path
    topics: tuple[SeedTopic, ...]


def read_plan(path: Path) -> SeedPlan:
    """Read a seed, and look at each record of it.

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
    return SeedPlan(path, tuple(_Reader(path).topics(root)))


class _Reader:
    """Turns the nodes of a seed's file into values."""

    def __init__(self, path: Path) -> None:
        self._path = path

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
        topic = SeedTopic(
            node.start_mark.line + 1,
            name,
            partitions,
            self._configs(fields.get("configs"), f"{where}.configs"),
            tuple(self._files(fields.get("records"), f"{where}.records")),
        )
        count = sum(1 for _ in topic.records())
        return SeedTopic(
            topic.line, name, partitions, topic.configs, topic.record_files, record_count=count
        )

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
        """What a plain value says as it is written; topics may be called 007 or yes."""
        if node.id != "scalar" or not node.value:
            raise self._wrong(node, f"{where}: must be a plain value")
        return str(node.value)

    def _wrong(self, node: Any, text: str) -> SeedError:
        return wrong(self._path, node.start_mark.line + 1, text)
