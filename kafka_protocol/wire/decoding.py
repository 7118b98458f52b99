"""Compiles a struct at one version to one Python function that decodes it.

The function is straight code. Runs of fixed-size fields are read by one `struct.Struct`, together
with the length byte that follows them; loops and nested structs are inline. No length is trusted.
An array must fit the rest of the buffer with the smallest size that its elements can have. All
arrays of one message share a budget of elements, and so do its tagged fields (`element_caps`).

The generated function takes (buf, pos) and returns (value, end position). It raises
MalformedMessageError. It also raises IndexError, struct.error or UnicodeDecodeError if the buffer
ends early or text is no UTF-8; `codec.Message` turns those into MalformedMessageError too.
"""

from functools import partial
from struct import Struct, calcsize, unpack_from
from typing import Any, NoReturn

from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.primitives import Buffer, continue_uvarint, read_uvarint
from kafka_protocol.wire.schema import (
    ELEMENTS_MAX,
    FIXED_FORMATS,
    ArrayType,
    Field,
    FieldType,
    StructType,
)
from kafka_protocol.wire.structs import bind, default_source

STRING_MAX_BYTES = 32_767
"""Bound of a string: compact strings keep Kafka's limit of the 2-byte length, too."""


def compile_decoder(
    struct: StructType, cls: Any, version: int, flexible: bool, *, name: str, cap: int
) -> Any:
    """Compile the decode function of `struct` at `version`.

    Args:
        struct: The schema.
        cls: Class of its values.
        version: Which.
        flexible: It has compact lengths and tagged sections.
        name: Of the message, for errors.
        cap: Elements that its arrays may have together.

    Returns:
        A function (buf, pos) -> (value, end). Any: it is made at run time.
    """
    writer = _DecodeWriter(version, flexible, f"{name} {version}", cap)
    source = writer.function(struct, cls)
    exec(compile(source, f"<decode {struct.class_name} {version}>", "exec"), writer.namespace)
    return writer.namespace["decode"]


def min_size(kind: FieldType, version: int, flexible: bool) -> int:
    """Bytes that a value of this type takes at least."""
    if isinstance(kind, StructType):
        total = 1 if flexible else 0
        for field in kind.fields:
            if version in field.versions and version not in field.tagged:
                null_struct = isinstance(field.type, StructType) and version in field.nullable
                total += 1 if null_struct else min_size(field.type, version, flexible)
        return total
    if isinstance(kind, str) and kind in FIXED_FORMATS:
        return calcsize(">" + FIXED_FORMATS[kind])
    if flexible:
        return 1
    return 2 if kind == "str" else 4


def smallest_element(struct: StructType, version: int, flexible: bool) -> int:
    """Bytes of the smallest element of an innermost array; 4 where no array holds structs."""
    sizes = []
    for field in struct.fields:
        kind = field.type
        if version not in field.versions or not isinstance(kind, ArrayType):
            continue
        if isinstance(kind.element, StructType):
            inner = kind.element.fields
            if any(isinstance(each.type, ArrayType) for each in inner if version in each.versions):
                sizes.append(smallest_element(kind.element, version, flexible))
            else:
                sizes.append(min_size(kind.element, version, flexible))
    return min(sizes, default=4)


def _bad(what: str) -> NoReturn:
    raise MalformedMessageError(f"{what} is null, negative or longer than the message")


def _too_many(name: str, cap: int, left: int) -> NoReturn:
    raise MalformedMessageError(f"{name}: {cap - left} elements or more, at most {cap} are taken")


def _too_many_tags(count: int) -> NoReturn:
    raise MalformedMessageError(
        f"a section of {count} tagged fields, at most {ELEMENTS_MAX} are taken in one message"
    )


def _skip_tags(buf: Buffer, pos: int, left: int) -> tuple[int, int]:
    """Skip a tagged section that starts at `pos`; returns (position after it, budget left)."""
    count, pos = read_uvarint(buf, pos)
    left -= count
    if left < 0:
        _too_many_tags(count)
    size = len(buf)
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        length, pos = read_uvarint(buf, pos)
        pos += length
        if pos > size:
            _bad("a tagged field")
    return pos, left


class _DecodeWriter:
    """Writes the source line by line; `_run` holds fixed-size reads not written yet."""

    def __init__(self, version: int, flexible: bool, name: str, cap: int) -> None:
        self._version = version
        self._cap = cap
        self._flexible = flexible
        self._lines: list[str] = []
        self._depth = 1
        self._names = 0
        self._run: list[tuple[str, str]] = []
        self.namespace: dict[str, Any] = {
            "new": object.__new__,
            "more": continue_uvarint,
            "uvarint": read_uvarint,
            "skip_tags": _skip_tags,
            "bad": _bad,
            "too_many": partial(_too_many, name, cap),
            "too_many_tags": _too_many_tags,
            "unpack_from": unpack_from,
        }

    def function(self, struct: StructType, cls: Any) -> str:
        """The whole function."""
        self._line("size = len(buf)")
        self._line(f"left = {self._cap}")
        if self._flexible:
            self._line(f"tags = {ELEMENTS_MAX}")
        target = self._struct(struct, cls, struct.class_name)
        self._flush()
        self._line(f"return {target}, pos")
        body = "\n".join(self._lines)
        view = " view = memoryview(buf)\n" if "view[" in body else ""
        return f"def decode(buf, pos):\n{view}{body}"

    def _line(self, text: str) -> None:
        self._lines.append(" " * self._depth + text)

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _fixed(self, letter: str, target: str) -> None:
        """Add a fixed-size read to the run."""
        self._run.append((letter, target))

    def _flush(self) -> None:
        """Write the pending run as one unpack."""
        if not self._run:
            return
        letters = "".join(letter for letter, _ in self._run)
        targets = ", ".join(target for _, target in self._run)
        if letters == "B":
            self._line(f"{targets} = buf[pos]")
            self._line("pos += 1")
        else:
            layout = Struct(">" + letters)
            name = "U" + letters.replace("?", "o")
            self.namespace[name] = layout.unpack_from
            single = "[0]" if len(self._run) == 1 else ""
            self._line(f"{targets} = {name}(buf, pos){single}")
            self._line(f"pos += {layout.size}")
        self._run.clear()

    def _struct(self, struct: StructType, cls: Any, path: str) -> str:
        """Write a struct's decoding; returns the variable that holds the object."""
        target = self._name("o")
        self._line(f"{target} = new({bind(self.namespace, cls)})")
        tagged: list[Field] = []
        for field in struct.fields:
            attribute = f"{target}.{field.attribute}"
            if self._version not in field.versions:
                self._line(f"{attribute} = {default_source(field, cls, self.namespace)}")
            elif self._version in field.tagged and self._flexible:
                self._line(f"{attribute} = {default_source(field, cls, self.namespace)}")
                tagged.append(field)
            else:
                self._value(field, attribute, cls, f"{path}.{field.name}")
        if self._flexible:
            self._tags(tagged, target, cls, path)
        return target

    def _value(self, field: Field, target: str, cls: Any, path: str) -> None:
        """Write the decoding of one positional (or tagged) value into `target`."""
        kind = field.type
        nullable = self._version in field.nullable
        if isinstance(kind, StructType):
            if nullable:
                self._nullable_struct(kind, target, cls, path, "b", "< 0")
            else:
                self._line(f"{target} = {self._struct(kind, _class_of(kind, cls), path)}")
        elif isinstance(kind, ArrayType):
            self._array(kind, target, cls, path, nullable)
        elif kind in FIXED_FORMATS:
            self._fixed(FIXED_FORMATS[kind], target)
        else:
            self._sized(kind, target, path, nullable, self._flexible and field.compact)

    def _nullable_struct(
        self, kind: StructType, target: str, cls: Any, path: str, letter: str, null_test: str
    ) -> None:
        flag = self._name("n")
        self._fixed(letter, flag)
        self._flush()
        self._line(f"if {flag} {null_test}:")
        self._line(f" {target} = None")
        self._line("else:")
        self._depth += 1
        made = self._struct(kind, _class_of(kind, cls), path)
        self._flush()
        self._line(f"{target} = {made}")
        self._depth -= 1

    def _length(
        self, path: str, letter: str, compact: bool, nullable: bool, limit: int | None = None
    ) -> str:
        """Write the reading of a length; the variable holds length + 1 if `compact`.

        A nullable value of any negative length is null, as in Kafka: also a compact one, whose 32
        bits are a negative number.
        """
        length = self._name("n")
        self._fixed("B" if compact else letter, length)
        self._flush()
        if compact:
            self._line(f"if {length} > 127:")
            self._line(f" {length}, pos = more(buf, pos, {length})")
            if nullable:
                self._line(f" if {2**31} < {length} < {2**32}: {length} = 0")
            if limit is not None:
                self._line(f" if {length} > {limit + 1}: bad({path!r})")
        return length

    def _sized(self, kind: str, target: str, path: str, nullable: bool, compact: bool) -> None:
        """Write the decoding of a str, bytes or rec."""
        is_text = kind == "str"
        limit = STRING_MAX_BYTES if is_text else None
        length = self._length(path, "h" if is_text else "i", compact, nullable, limit)
        if nullable:
            self._line(f"if {length} == 0:" if compact else f"if {length} < 0:")
            self._line(f" {target} = None")
            if is_text:  # often empty: metadata of a committed offset, an id that a client lacks
                self._line(f"elif {length} == {int(compact)}:")
                self._line(f" {target} = ''")
            self._line("else:")
            self._depth += 1
        self._line(f"end = pos + {length} - 1" if compact else f"end = pos + {length}")
        self._line(f"if not pos <= end <= size: bad({path!r})")
        value = {
            "str": "str(buf[pos:end], 'utf-8')",
            "bytes": "bytes(buf[pos:end])",
            "rec": "view[pos:end]",
        }[kind]
        self._line(f"{target} = {value}")
        self._line("pos = end")
        if nullable:
            self._depth -= 1

    def _array(self, kind: ArrayType, target: str, cls: Any, path: str, nullable: bool) -> None:
        count = self._length(path, "i", self._flexible, nullable)
        if self._flexible:
            self._line(f"{count} -= 1")
        smallest = min_size(kind.element, self._version, self._flexible)
        if nullable:
            self._line(f"if {count} < 0:")
            self._line(f" {target} = None")
            self._line("else:")
            self._depth += 1
            self._line(f"if {count} * {smallest} > size - pos: bad({path!r})")
        else:
            self._line(f"if not 0 <= {count} * {smallest} <= size - pos: bad({path!r})")
        self._line(f"left -= {count}")
        self._line("if left < 0: too_many(left)")
        self._elements(kind.element, target, count, cls, path)
        if nullable:
            self._depth -= 1

    def _elements(self, kind: FieldType, target: str, count: str, cls: Any, path: str) -> None:
        if isinstance(kind, str) and kind in FIXED_FORMATS:
            letter = FIXED_FORMATS[kind]
            if kind == "uuid":
                ends = f"range(pos, pos + 16 * {count}, 16)"
                self._line(f"{target} = [bytes(buf[p:p + 16]) for p in {ends}]")
            else:
                read = f"list(unpack_from('>%d{letter}' % {count}, buf, pos))"
                self._line(f"{target} = {read} if {count} else []")
            self._line(f"pos += {count} * {calcsize('>' + letter)}")
            return
        items = self._name("a")
        self._line(f"{items} = {target} = []")
        self._line(f"for _ in range({count}):")
        self._depth += 1
        if isinstance(kind, StructType):
            made = self._struct(kind, _class_of(kind, cls), path)
        else:
            assert isinstance(kind, str)
            made = self._name("v")
            self._sized(kind, made, path, False, self._flexible)
        self._flush()
        self._line(f"{items}.append({made})")
        self._depth -= 1

    def _tags(self, fields: list[Field], target: str, cls: Any, path: str) -> None:
        count = self._name("t")
        self._fixed("B", count)
        self._flush()
        self._line(f"if {count}:")
        self._depth += 1
        if not fields:
            self._line("pos, tags = skip_tags(buf, pos - 1, tags)")
            self._depth -= 1
            return
        tag, stop = self._name("tag"), self._name("stop")
        self._line(f"{count}, pos = uvarint(buf, pos - 1)")
        self._line(f"tags -= {count}")
        self._line(f"if tags < 0: too_many_tags({count})")
        self._line(f"for _ in range({count}):")
        self._depth += 1
        for name in (tag, stop):
            self._line(f"{name} = buf[pos]")
            self._line("pos += 1")
            self._line(f"if {name} > 127: {name}, pos = more(buf, pos, {name})")
        self._line(f"{stop} += pos")
        self._line(f"if {stop} > size: bad('a tagged field of {path}')")
        word = "if"
        for field in sorted(fields, key=_tag_number):
            self._line(f"{word} {tag} == {field.tag}:")
            self._depth += 1
            self._tag_payload(field, f"{target}.{field.attribute}", cls, f"{path}.{field.name}")
            self._flush()
            self._line(f"if pos != {stop}: bad({path + '.' + field.name!r})")
            self._depth -= 1
            word = "elif"
        self._line("else:")
        self._line(f" pos = {stop}")
        self._depth -= 2

    def _tag_payload(self, field: Field, target: str, cls: Any, path: str) -> None:
        """A tagged nullable struct has a one-byte varint 0 or 1 in front; all else is as usual."""
        if isinstance(field.type, StructType) and self._version in field.nullable:
            self._nullable_struct(field.type, target, cls, path, "B", "== 0")
        else:
            self._value(field, target, cls, path)


def _class_of(kind: StructType, parent: Any) -> Any:
    return getattr(parent, kind.class_name)


def _tag_number(field: Field) -> int:
    assert field.tag is not None
    return field.tag
