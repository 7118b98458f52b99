"""Reads the golden data, and prints our values the way Kafka's own tools printed theirs."""

import base64
import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from kafka_protocol.wire.codec import Message
from kafka_protocol.wire.primitives import uuid_to_text
from kafka_protocol.wire.schema import ArrayType, Field, FieldType, StructType
from tests.support.samples.golden_files import GOLDEN


def frames(api: str) -> list[dict[str, Any]]:
    """The recorded pairs of request and response of an API."""
    with (GOLDEN / "frames" / f"{api}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def controller_frames() -> list[dict[str, Any]]:
    """What controllers of Apache Kafka answered, well asked and badly; see the golden README."""
    with (GOLDEN / "controllers" / "frames.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def dumps() -> dict[str, list[str]]:
    """What Kafka's dump tool printed, by the dumped file's path below the golden folder."""
    found: dict[str, list[str]] = {}
    for path in sorted((GOLDEN / "dumps").rglob("*")):
        if path.is_dir():
            continue
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        section: list[str] = []
        for line in data.decode("utf-8", "replace").split("\n"):
            if line.startswith("Dumping "):
                section = found.setdefault(line.removeprefix("Dumping "), [])
            elif line:
                section.append(line)
    return found


def golden_file(dumped: str) -> Path:
    """The file of a dump; dumps of `*.deleted` files carry the files' old names."""
    path = GOLDEN / dumped
    if ".deleted-view/" in dumped:
        path = GOLDEN / (dumped.replace(".deleted-view/", "/") + ".deleted")
    return path


def dumped_files(suffix: str) -> list[str]:
    """All dumped files of a kind."""
    return sorted(path for path in dumps() if path.endswith(suffix))


def kafka_json(schema: Message, value: Any, version: int) -> dict[str, Any]:
    """A message as Kafka's generated JSON converters write it."""
    return _struct(schema.struct, value, version, schema.is_flexible(version))


def _struct(struct: StructType, value: Any, version: int, flexible: bool) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in struct.fields:
        if version not in field.versions:
            continue
        content = getattr(value, field.attribute)
        if field.tag is not None and flexible and version in field.tagged:
            absent = getattr(type(value)(), field.attribute)
            if content == absent:
                continue
        name = field.name[0].lower() + field.name[1:]
        if field.type == "rec":
            out[name + "SizeInBytes"] = 0 if content is None else len(content)
        else:
            out[name] = _value(field, field.type, content, version, flexible)
    return out


def _value(field: Field, kind: FieldType, value: Any, version: int, flexible: bool) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayType):
        return [_value(field, kind.element, item, version, flexible) for item in value]
    if isinstance(kind, StructType):
        return _struct(kind, value, version, flexible)
    if kind == "uuid":
        return uuid_to_text(value)
    if kind == "bytes":
        return base64.b64encode(value).decode()
    return value


def iter_golden(pattern: str) -> Iterator[Path]:
    """Files of the golden folder that match a glob."""
    return iter(sorted(GOLDEN.rglob(pattern)))


def golden_id(path: Path) -> str:
    """A golden file's path in the names of tests."""
    return str(path.relative_to(GOLDEN))
