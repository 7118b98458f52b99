"""`meta.properties` of a log directory and `partition.metadata` of a partition: their owners.

Both are short texts. `meta.properties` is a Java properties file; unknown keys are kept.
"""

from dataclasses import dataclass, field

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.wire.primitives import uuid_from_text, uuid_to_text

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"


_KAFKAS_ORDER = ("broker.id", "node.id", "directory.id", "version", "cluster.id")
_PLACE = {key: place for place, key in enumerate(_KAFKAS_ORDER)}


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Identity of a log directory.

    Attributes:
        directory_id: 16 bytes; None in directories of old versions.
        version: 1, or 0 where the node id is still called `broker.id`.
        others: Unknown keys of the file, which are kept.
    """

    cluster_id: str
    node_id: int
    directory_id: bytes | None
    version: int = 1
    others: dict[str, str] = field(default_factory=dict)


def dump_meta_properties(meta: MetaProperties) -> bytes:
    """Write the file: keys in the order of Kafka's storage tool, then others; no comment."""
    values = dict(meta.others)
    values["version"] = str(meta.version)
    values["cluster.id"] = meta.cluster_id
    values["node.id" if meta.version else "broker.id"] = str(meta.node_id)
    if meta.directory_id is not None:
        values["directory.id"] = uuid_to_text(meta.directory_id)
    ordered = sorted(values, key=lambda key: (_PLACE.get(key, len(_PLACE)), key))
    return "".join(f"{key}={_escape(values[key])}\n" for key in ordered).encode()


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Read the file.

    Raises:
        CorruptFileError: It is no text, or a required key is missing or has a wrong value.
    """
    values = _properties(data)
    try:
        version = int(values.pop("version"))
        cluster_id = values.pop("cluster.id")
        node_id = int(values.pop("node.id" if version else "broker.id"))
        directory = values.pop("directory.id", None)
        directory_id = None if directory is None else uuid_from_text(directory)
    except KeyError as error:
        raise CorruptFileError(f"{META_PROPERTIES}: key {error} is missing") from error
    except ValueError as error:
        raise CorruptFileError(f"{META_PROPERTIES}: {error}") from error
    return MetaProperties(cluster_id, node_id, directory_id, version, values)


def dump_partition_metadata(topic_id: bytes) -> bytes:
    """Write `partition.metadata`: no newline at the end, as Kafka."""
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> bytes:
    """Read the topic id (16 bytes) of `partition.metadata`.

    Raises:
        CorruptFileError: Another version or shape.
    """
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[0] != "version: 0" or len(lines) < 2 or not lines[1].startswith("topic_id: "):
        raise CorruptFileError(f"{PARTITION_METADATA}: not of version 0: {data[:80]!r}")
    try:
        return uuid_from_text(lines[1].removeprefix("topic_id: ").strip())
    except ValueError as error:
        raise CorruptFileError(f"{PARTITION_METADATA}: {error}") from error


def _escape(value: str) -> str:
    """Escape the characters that are special in a Java properties value."""
    out = value.replace("\\", "\\\\")
    for plain in ":=#!":
        out = out.replace(plain, "\\" + plain)
    return out


def _properties(data: bytes) -> dict[str, str]:
    """Read `key=value` lines; continuation lines do not occur in these files."""
    values: dict[str, str] = {}
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{META_PROPERTIES}: no UTF-8 text") from error
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, sign, value = stripped.partition("=")
        if not sign:
            raise CorruptFileError(f"{META_PROPERTIES}: malformed line {stripped[:80]!r}")
        values[key.strip()] = _unescape(value.strip())
    return values


def _unescape(value: str) -> str:
    out: list[str] = []
    characters = iter(value)
    for character in characters:
        out.append(next(characters, "") if character == "\\" else character)
    return "".join(out)
