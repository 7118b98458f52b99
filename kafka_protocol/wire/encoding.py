"""Compiles a struct at one version to one Python function that encodes it.

The function appends to one bytearray. One `struct.Struct` packs a run of fixed-size fields, with
the length that follows them and an empty tagged section. Record data is not copied: the bytearray
so far and the record parts go to the gather list, and a new bytearray begins.

The generated function takes (value, out, parts) and returns the bytearray that ends the message.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct, pack
from typing import Any, Generic, TypeVar

from kafka_protocol.wire.primitives import SMALL_UVARINTS, encode_uvarint
from kafka_protocol.wire.schema import (
    FIXED_FORMATS,
    ArrayType,
    Default,
    Field,
    FieldType,
    StructType,
)
from kafka_protocol.wire.structs import bind, is_shared, shared_name

T = TypeVar("T")

_STEP_BYTES = 32 << 10
"""Approximate number of bytes encoded in a step, which takes one to three milliseconds."""

_COPY_BYTES = 1024
"""Record data up to this size is copied into the bytearray instead of becoming a part."""


class Gather:
    """Record data in several parts, to be sent in this order.

    Attributes:
        parts: Bytes-like objects, or any object with an int `size_bytes` (a region of a file).
        size_bytes: Of all parts together.
    """

    __slots__ = ("parts", "size_bytes")

    def __init__(self, parts: Sequence[object], size_bytes: int) -> None:
        self.parts = parts
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    def __repr__(self) -> str:
        return f"Gather({len(self.parts)} parts, {self.size_bytes} bytes)"


class LongArray(Generic[T]):
    """An array of a message whose elements are made while it is encoded, and released at once.

    A hundred thousand elements at a time cost memory, and time to collect and free them. If the
    message is encoded in steps, the elements are made within the steps.
    """

    __slots__ = ("_count", "_elements")

    def __init__(self, count: int, elements: Iterable[T]) -> None:
        """Take an iterable of `count` elements."""
        self._count = count
        self._elements = elements

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter(self._elements)


class EncodedArray:
    """An array of structs that are encoded already, by `Message.encode_element` of that version.

    Attributes:
        data: The elements one behind the other, without their count.
    """

    __slots__ = ("_count", "data")

    def __init__(self, elements: Sequence[bytes]) -> None:
        self._count = len(elements)
        self.data = b"".join(elements)

    def __len__(self) -> int:
        return self._count


def compile_encoder(struct: StructType, cls: Any, version: int, flexible: bool) -> Any:
    """Compile the encode function of `struct` at `version`.

    Returns:
        A function (value, out, parts) -> bytearray. Any: it is made at run time.
    """
    writer = _EncodeWriter(version, flexible)
    source = writer.function(struct, cls)
    exec(compile(source, f"<encode {struct.class_name} {version}>", "exec"), writer.namespace)
    return writer.namespace["encode"]


def _put_records(records: Any, out: bytearray, parts: list[object]) -> bytearray:
    """Put record data behind the bytes so far; returns the bytearray to continue with."""
    if type(records) is not Gather:
        if len(records) <= _COPY_BYTES:
            out += records
            return out
        parts.append(out)
        parts.append(records)
    elif records.size_bytes:
        parts.append(out)
        parts.extend(records.parts)
    else:
        return out
    return bytearray()


def compile_step_encoder(struct: StructType, cls: Any, version: int, flexible: bool) -> Any:
    """Compile the same function in steps: it yields within the arrays.

    Returns:
        A function (value, out, parts) -> Steps[bytearray]. Any: it is made at run time.
    """
    writer = _EncodeWriter(version, flexible, in_steps=True)
    source = writer.function(struct, cls)
    exec(
        compile(source, f"<encode {struct.class_name} {version} in steps>", "exec"),
        writer.namespace,
    )
    return writer.namespace["encode"]


class _EncodeWriter:
    """Writes the source line by line; `_run` holds fixed-size writes not written yet."""

    def __init__(self, version: int, flexible: bool, *, in_steps: bool = False) -> None:
        self._version = version
        self._flexible = flexible
        self._in_steps = in_steps
        self._lines: list[str] = []
        self._depth = 1
        self._names = 0
        self._run: list[tuple[str, str]] = []
        self.namespace: dict[str, Any] = {
            "pack": pack,
            "SMALL": SMALL_UVARINTS,
            "uvarint": encode_uvarint,
            "put_records": _put_records,
            "EncodedArray": EncodedArray,
        }

    def function(self, struct: StructType, cls: Any) -> str:
        """The whole function."""
        if self._in_steps:
            self._line(f"step_end = {_STEP_BYTES}")
            self._line("if False: yield")  # a generator for any struct
        self._struct(struct, cls, "value")
        self._flush()
        self._line("return out")
        return "def encode(value, out, parts):\n" + "\n".join(self._lines)

    def _line(self, text: str) -> None:
        self._lines.append(" " * self._depth + text)

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _packed(self, run: list[tuple[str, str]]) -> str:
        """Source of the bytes of a run; the letter x is a zero byte without a value."""
        letters = "".join(letter for letter, _ in run)
        values = ", ".join(value for letter, value in run if letter != "x")
        if letters == "x":
            return "b'\\0'"
        name = "P" + letters.replace("?", "o")
        self.namespace[name] = Struct(">" + letters).pack
        return f"{name}({values})"

    def _flush(self) -> None:
        if self._run:
            self._line(f"out += {self._packed(self._run)}")
            self._run.clear()

    def _compact_length(self, number: str) -> None:
        """Write the run and a varint; nearly always it fits one byte and joins the run."""
        run = self._run
        self._run = []
        if not run:
            self._line(f"out += SMALL[{number}] if {number} < 2048 else uvarint({number})")
            return
        self._line(f"if {number} < 128:")
        self._line(f" out += {self._packed([*run, ('B', number)])}")
        self._line("else:")
        self._line(f" out += {self._packed(run)}; out += uvarint({number})")

    def _struct(self, struct: StructType, cls: Any, source: str) -> None:
        tagged: list[Field] = []
        for field in struct.fields:
            if self._version not in field.versions:
                continue
            if self._version in field.tagged and self._flexible:
                tagged.append(field)
            else:
                self._value(field, f"{source}.{field.attribute}", cls)
        if self._flexible:
            self._tags(sorted(tagged, key=_tag_number), cls, source)

    def _value(self, field: Field, source: str, cls: Any) -> None:
        """Write the encoding of one positional (or tagged) value found at `source`."""
        kind = field.type
        nullable = self._version in field.nullable
        if isinstance(kind, StructType):
            variable = self._name("o")
            self._line(f"{variable} = {source}")
            if nullable:
                self._nullable_struct(kind, variable, cls, "b'\\xff'")
            else:
                self._struct(kind, getattr(cls, kind.class_name), variable)
        elif isinstance(kind, ArrayType):
            self._array(kind, source, cls, nullable)
        elif kind in FIXED_FORMATS:
            self._run.append((FIXED_FORMATS[kind], source))
        else:
            self._sized(kind, source, nullable, self._flexible and field.compact)

    def _nullable_struct(self, kind: StructType, variable: str, cls: Any, null: str) -> None:
        self._flush()
        self._line(f"if {variable} is None:")
        self._line(f" out += {null}")
        self._line("else:")
        self._depth += 1
        self._line("out += b'\\x01'")
        self._struct(kind, getattr(cls, kind.class_name), variable)
        self._flush()
        self._depth -= 1

    def _sized(self, kind: str, source: str, nullable: bool, compact: bool) -> None:
        """Write the encoding of a str, bytes or rec."""
        data, size = self._name("d"), self._name("n")
        convert = ".encode()" if kind == "str" else ""
        one = " + 1" if compact else ""
        if nullable:
            self._line(f"{data} = {source}")
            self._line(f"if {data} is None: {data} = b''; {size} = {0 if compact else -1}")
            change = f"{data} = {data}.encode(); " if convert else ""
            self._line(f"else: {change}{size} = len({data}){one}")
        else:
            self._line(f"{data} = {source}{convert}; {size} = len({data}){one}")
        if compact:
            self._compact_length(size)
        else:
            self._run.append(("h" if kind == "str" else "i", size))
            self._flush()
        if kind == "rec":
            self._line(f"out = put_records({data}, out, parts)")
        else:
            self._line(f"out += {data}")

    def _array(self, kind: ArrayType, source: str, cls: Any, nullable: bool) -> None:
        items, count = self._name("a"), self._name("n")
        self._line(f"{items} = {source}")
        if nullable:
            self._line(f"{count} = -1 if {items} is None else len({items})")
        else:
            self._line(f"{count} = len({items})")
        if self._flexible:
            self._line(f"{count} += 1")
            self._compact_length(count)
        else:
            self._run.append(("i", count))
            self._flush()
        word = "if"
        if isinstance(kind.element, StructType):
            self._line(f"if type({items}) is EncodedArray: out += {items}.data")
            word = "elif"
        self._line(f"{word} {items}:")
        self._depth += 1
        self._elements(kind.element, items, cls)
        self._depth -= 1

    def _elements(self, kind: FieldType, items: str, cls: Any) -> None:
        if kind == "uuid":
            self._line(f"out += b''.join({items})")
        elif isinstance(kind, str) and kind in FIXED_FORMATS:
            self._line(f"out += pack('>%d{FIXED_FORMATS[kind]}' % len({items}), *{items})")
        else:
            item = self._name("i")
            self._line(f"for {item} in {items}:")
            self._depth += 1
            if isinstance(kind, StructType):
                self._struct(kind, getattr(cls, kind.class_name), item)
            else:
                assert isinstance(kind, str)
                self._sized(kind, item, False, self._flexible)
            self._flush()
            if self._in_steps:
                self._line(f"if len(out) > step_end: step_end = len(out) + {_STEP_BYTES}; yield")
            self._depth -= 1

    def _tags(self, fields: list[Field], cls: Any, source: str) -> None:
        if not fields:
            self._run.append(("x", ""))
            return
        self._flush()
        count, section = self._name("t"), self._name("s")
        self._line(f"{count} = 0")
        for field in fields:
            value = self._name("v")
            self._line(f"{value} = {source}.{field.attribute}")
            self._line(f"if {self._differs(field, value, cls)}:")
            self._depth += 1
            outer = self._name("h")
            self._line(f"if not {count}: {section} = bytearray()")
            self._line(f"{count} += 1; {outer} = out; out = bytearray()")
            if isinstance(field.type, StructType) and self._version in field.nullable:
                self._nullable_struct(field.type, value, cls, "b'\\0'")
            elif isinstance(field.type, StructType):
                self._struct(field.type, getattr(cls, field.type.class_name), value)
            else:
                self._value(field, value, cls)
            self._flush()
            self._line(f"{section} += uvarint({field.tag}); {section} += uvarint(len(out))")
            self._line(f"{section} += out; out = {outer}")
            self._depth -= 1
        self._line(f"if {count}: out += uvarint({count}); out += {section}")
        self._line("else: out += b'\\0'")

    def _differs(self, field: Field, value: str, cls: Any) -> str:
        """Source of the test whether a tagged field must be written."""
        if field.default is not Default.MADE:
            if field.default is None:
                return f"{value} is not None"
            return f"{value} != {field.default!r}"
        if isinstance(field.type, ArrayType):
            return f"{value} or {value} is None"
        if is_shared(field):
            shared = bind(self.namespace, getattr(cls, shared_name(field)))
            return f"{value} is not {shared} and {value} != {shared}"
        absent = bind(self.namespace, getattr(cls, field.type.class_name)())  # type: ignore[union-attr]
        return f"{value} != {absent}"


def _tag_number(field: Field) -> int:
    assert field.tag is not None
    return field.tag
