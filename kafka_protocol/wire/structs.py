"""Classes for the structs of a schema: slots, keyword constructor with the schema's defaults.

Nested structs are attributes of their parent's class under Kafka's field name in CamelCase:
`ProduceRequest.TopicData.PartitionData`.

A tagged struct that is absent reads as one shared value of defaults which refuses changes: assign
a new struct instead. So a Fetch answer of a thousand partitions does not carry 3,000 of them.
"""

from typing import Any, ClassVar, NoReturn

from kafka_protocol.wire.schema import ArrayType, Default, Field, FieldType, StructType


class StructBase:
    """The base of the classes of all structs."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StructBase) or self._fields is not other._fields:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({values})"


def nested_struct(kind: FieldType) -> StructType | None:
    """The struct that a field holds, itself or in an array."""
    while isinstance(kind, ArrayType):
        kind = kind.element
    return kind if isinstance(kind, StructType) else None


def is_shared(field: Field) -> bool:
    """True if the field's absent value is the shared one: a tagged struct without lists."""
    return (
        field.tag is not None
        and field.default is Default.MADE
        and isinstance(field.type, StructType)
        and not any(isinstance(inner.type, ArrayType) for inner in field.type.fields)
    )


def make_class(struct: StructType) -> Any:
    """Make the class of a struct and, inside it, those of the structs it holds.

    Returns:
        The class. Any: its attributes are known from the schema alone.
    """
    names = tuple(field.attribute for field in struct.fields)
    namespace: dict[str, Any] = {
        "__slots__": names,
        "_fields": names,
        "__doc__": f"`{struct.class_name}` of Kafka's schemas.",
    }
    for field in struct.fields:
        inner = nested_struct(field.type)
        if inner is not None:
            made = make_class(inner)
            namespace[inner.class_name] = made
            if is_shared(field):
                namespace[shared_name(field)] = _frozen(made)
    cls = type(struct.class_name, (StructBase,), namespace)
    cls.__init__ = _constructor(cls, struct)  # type: ignore[misc]
    return cls


def shared_name(field: Field) -> str:
    """Attribute of the parent's class that holds a field's shared value of defaults."""
    return f"_absent_{field.attribute}"


def default_source(field: Field, cls: Any, namespace: dict[str, Any]) -> str:
    """Write Python source for a field's absent value, adding the names it needs.

    Args:
        field: Which field.
        cls: The class the field belongs to.
        namespace: Globals of the function the source goes into.
    """
    if field.default is not Default.MADE:
        return repr(field.default)
    if isinstance(field.type, ArrayType):
        return "[]"
    if is_shared(field):
        return bind(namespace, getattr(cls, shared_name(field)))
    assert isinstance(field.type, StructType)
    return bind(namespace, getattr(cls, field.type.class_name)) + "()"


def bind(namespace: dict[str, Any], value: Any) -> str:
    """Give `value` a name in the globals of generated code."""
    name = f"G{id(value)}"
    namespace[name] = value
    return name


def _constructor(cls: Any, struct: StructType) -> Any:
    """Compile `__init__`: every field by keyword, defaults as in the schema."""
    namespace: dict[str, Any] = {"MADE": Default.MADE}
    parameters: list[str] = []
    body: list[str] = []
    for field in struct.fields:
        name = field.attribute
        if field.default is Default.MADE:
            fresh = default_source(field, cls, namespace)
            parameters.append(f"{name}=MADE")
            body.append(f" self.{name} = {fresh} if {name} is MADE else {name}")
        else:
            parameters.append(f"{name}={field.default!r}")
            body.append(f" self.{name} = {name}")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n"
    exec(source + ("\n".join(body) or " pass"), namespace)
    return namespace["__init__"]


def _refuse(self: StructBase, name: str, value: object) -> NoReturn:
    raise AttributeError(f"{type(self).__name__} is a shared default: assign a new struct instead")


def _itself(self: StructBase, memo: object = None) -> StructBase:
    return self


def _frozen(cls: Any) -> Any:
    """Make an instance of defaults that cannot be changed."""
    plain = cls()
    namespace = {
        "__slots__": (),
        "__doc__": cls.__doc__,
        "__setattr__": _refuse,
        "__copy__": _itself,
        "__deepcopy__": _itself,
    }
    value: Any = object.__new__(type(cls.__name__, (cls,), namespace))
    for name in cls._fields:
        object.__setattr__(value, name, getattr(plain, name))
    return value
