"""The grammar of schema lines: text to tables of structs and fields.

A line is `key Name kind versions fN cap | fields`. The kind is `req` or `rsp`; it is absent for
records, whose key may be `-`. `fN` is the first flexible version, `f-` none. The cap is the maximum
number of elements of a request with arrays (`element_caps`). A field is `Name:type`, then in this
order, each only where it applies:

    ?  ?7+        nullable (only in those versions)
    @T  @T(7+)    tagged with tag T (only in those versions, else in its place)
    !nc           never compact, also in flexible versions
    =x            default, when it is not zero, empty or false
    a  a+  a-b    versions, when narrower than its parent's

Types: i8 i16 i32 i64 u16 u32 f64 bool uuid str bytes rec (record batches), `[]` before a type for
an array, `{...}` for a struct. Line breaks and indentation mean nothing.

Source: the JSON message schemas of Apache Kafka 4.3 hold the same facts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

FIXED_FORMATS = {
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u16": "H",
    "u32": "I",
    "f64": "d",
    "bool": "?",
    "uuid": "16s",
}
"""Types of fixed size, and their letters in `struct`."""

_HEAD = re.compile(
    r"\s*(?P<key>\d+|-)\s+(?P<name>\w+)(?:\s+(?P<kind>req|rsp))?"
    r"\s+(?P<versions>\d+(?:-\d+|\+)?)\s+f(?P<flexible>\d+|-)(?:\s+(?P<cap>[a-z]+))?\s*\|"
)
_TYPES = frozenset(FIXED_FORMATS) | {"str", "bytes", "rec"}
_LAST = 0x7FFF


class Cap(NamedTuple):
    """A cap and its reason.

    Nested arrays with true counts in a frame of 100 MiB make hundreds of millions of objects. Each
    API has the cap that its largest sensible request needs, so that a hostile one costs no more
    memory than that. The schema of a request names the cap. A request above it is malformed, and
    ends its connection.

    DIFFERS: Kafka has no such caps.

    Attributes:
        elements: Maximum for all arrays of a request together, nested ones too (inclusive).
        reason: The largest request of an honest client.
    """

    elements: int
    reason: str


CAPS: Final[Mapping[str, Cap]] = {
    "partitions": Cap(250_000, "100,000 partitions, each of a topic of its own, and some beside"),
    "settings": Cap(250_000, "all settings of some thousand topics"),
    "made": Cap(150_000, "10,000 partitions at 8 chosen brokers each; no more are made at once"),
    "groups": Cap(100_000, "names of all groups or transactions of a cluster"),
    "members": Cap(20_000, "members of one group: each has all the others wait"),
    "rules": Cap(10_000, "rules, quotas or users that a tool sets at once"),
    "few": Cap(1_000, "what one client or node has: assignors, filters, listeners, directories"),
    "quorum": Cap(1_000, "the one partition of the metadata log, and a quorum's voters"),
}
"""Caps by their names in schemas of requests with arrays, at the end of the head."""

ELEMENTS_MAX: Final = 250_000
"""Bound for messages of nodes of this cluster (answers) or their files (records), and for all
unknown tagged fields of a message, which are skipped."""


class Default(Enum):
    """Marks a default that is made again for each value: an empty list, a struct of defaults."""

    MADE = "made"


_TOKEN = re.compile(
    r"\s*(?P<name>[A-Za-z][A-Za-z0-9]*):"
    r"|\s*(?P<array>\[\])"
    r"|\s*(?P<open>\{)"
    r"|\s*(?P<close>\})"
    r"|\s*(?P<comma>,)"
    r"|(?P<nullable>\?(?:\d+(?:-\d+|\+)?)?)"
    r"|@(?P<tag>\d+)(?:\((?P<tag_versions>[\d+-]+)\))?"
    r"|(?P<nc>!nc)"
    r"|=(?P<default>[-\w]+)"
    r"|\s+(?P<versions>\d+(?:-\d+|\+)?)(?=[\s,}]|$)"
    r"|\s*(?P<type>[a-z][a-z0-9]*)"
)


class Versions(NamedTuple):
    """A range of versions, both ends inclusive."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


ALL_VERSIONS = Versions(0, _LAST)
NO_VERSIONS = Versions(1, 0)


@dataclass(frozen=True, slots=True)
class StructType:
    """Fields in wire order; `class_name` is how the nested class is called."""

    class_name: str
    fields: "tuple[Field, ...]"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of elements of one type."""

    element: "FieldType"


FieldType = str | ArrayType | StructType


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct.

    Attributes:
        name: As in Kafka's schema.
        attribute: The same in Python's case.
        versions: Versions that have the field, if they have its parent.
        nullable: Versions in which it may be null, likewise.
        tag: Number in the tagged section, None for positional fields.
        tagged: Versions in which it is tagged.
        compact: False for the one string that keeps its 2-byte length everywhere.
        default: Value when absent; for structs and arrays None or `Default.MADE`.
    """

    name: str
    attribute: str
    type: FieldType
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    compact: bool
    default: object


@dataclass(frozen=True, slots=True)
class Schema:
    """One parsed line.

    Attributes:
        api_key: Number in front of the line, None for `-`.
        flexible_from: First flexible version, None if there is none.
        elements_max: Of all its arrays together.
    """

    name: str
    api_key: int | None
    versions: Versions
    flexible_from: int | None
    elements_max: int
    struct: StructType


def snake_case(name: str) -> str:
    """Kafka's field name in Python's case: `TopicData` to `topic_data`."""
    name = name.replace("KRaft", "Kraft").replace("kRaft", "kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def parse_schema(line: str) -> Schema:
    """Parse one schema line.

    Raises:
        ValueError: The line does not follow the grammar.
    """
    head = _head_of(line)
    name = head["name"] + {"req": "Request", "rsp": "Response", None: ""}[head["kind"]]
    return Schema(
        name=name,
        api_key=_number(head["key"]),
        versions=versions_of(head["versions"]),
        flexible_from=_number(head["flexible"]),
        elements_max=CAPS[head["cap"]].elements if head["cap"] else ELEMENTS_MAX,
        struct=StructType(name, _FieldParser(line[head.end() :]).all_fields()),
    )


def first_flexible(line: str) -> int | None:
    """Read the first flexible version of a schema line, and nothing else of it."""
    return _number(_head_of(line)["flexible"])


def _head_of(line: str) -> re.Match[str]:
    head = _HEAD.match(line)
    if head is None or (head["cap"] and head["cap"] not in CAPS):
        raise ValueError(f"no schema line: {line[:80]!r}")
    return head


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def versions_of(text: str) -> Versions:
    """Read `a`, `a+` or `a-b`; nothing means all."""
    if not text:
        return ALL_VERSIONS
    first, dash, last = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return Versions(int(first), _LAST)
    return Versions(int(first), int(last) if dash else int(first))


class _FieldParser:
    """Recursive descent over the part of a line after the bar."""

    def __init__(self, text: str) -> None:
        self._text = text.rstrip()
        self._position = 0

    def all_fields(self) -> "tuple[Field, ...]":
        """Read the fields of the top level, to the end of the text."""
        found = self._fields() if self._text else ()
        if self._position != len(self._text):
            raise self._error("what is this")
        return found

    def _error(self, what: str) -> ValueError:
        return ValueError(f"{what}: {self._text[self._position :][:60]!r}")

    def _take(self, kind: str) -> re.Match[str] | None:
        """Step over the next token if it is of `kind`."""
        match = _TOKEN.match(self._text, self._position)
        if match is None or match[kind] is None:
            return None
        self._position = match.end()
        return match

    def _fields(self) -> "tuple[Field, ...]":
        found = [self._field()]
        while self._take("comma"):
            found.append(self._field())
        return tuple(found)

    def _field(self) -> "Field":
        name_match = self._take("name")
        if name_match is None:
            raise self._error("a field must begin here")
        name = name_match["name"]
        kind = self._type(name)
        nullable = self._take("nullable")
        tag = self._take("tag")
        compact = self._take("nc") is None
        default = self._take("default")
        versions = self._take("versions")
        null_in = NO_VERSIONS if nullable is None else versions_of(nullable["nullable"][1:])
        return Field(
            name=name,
            attribute=snake_case(name),
            type=kind,
            versions=ALL_VERSIONS if versions is None else versions_of(versions["versions"]),
            nullable=null_in,
            tag=None if tag is None else int(tag["tag"]),
            tagged=NO_VERSIONS if tag is None else versions_of(tag["tag_versions"] or ""),
            compact=compact,
            default=_default(kind, default and default["default"], null_in),
        )

    def _type(self, name: str) -> "FieldType":
        if self._take("array"):
            return ArrayType(self._type(name))
        if self._take("open"):
            fields = self._fields()
            if not self._take("close"):
                raise self._error("a } belongs here")
            return StructType(name[0].upper() + name[1:], fields)
        match = self._take("type")
        if match is None or match["type"] not in _TYPES:
            raise self._error("no type")
        return match["type"]


_ZEROS: dict[str, object] = {
    "bool": False,
    "f64": 0.0,
    "uuid": bytes(16),
    "str": "",
    "bytes": b"",
    "rec": b"",
}


def _default(kind: "FieldType", text: str | None, nullable: Versions) -> object:
    """The value of an absent field of this type whose default is written `text`."""
    if text == "null":
        return None
    if not isinstance(kind, str):
        return Default.MADE
    if kind == "rec" and nullable != NO_VERSIONS:
        return None
    if text is None:
        return _ZEROS.get(kind, 0)
    if kind == "bool":
        return text == "true"
    return text if kind == "str" else int(text, 0)
