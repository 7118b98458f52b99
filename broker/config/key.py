"""A configuration key as data: name, type, default, allowed values, and one line of help.

One entry gives the parser, the default, the row in `docs/configuration.md` and the answer to
DescribeConfigs, so they are always the same. Values are plain Python values. No code here resolves
a class name, opens a path or expands `${...}`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, TypeAlias

from kafka_protocol.errors import TidemarkError
from runtime.log_context import escape

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

_SHOWN_MAX: Final = 300  # characters of a value in an error text, because a client may have sent it
INTEGER_BITS: Final[Mapping[str, int]] = {"SHORT": 16, "INT": 32, "LONG": 64}


class ConfigType(IntEnum):
    """The type of a value, with its number in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN: Final = ConfigType.BOOLEAN
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
SHORT: Final = ConfigType.SHORT
LONG: Final = ConfigType.LONG
DOUBLE: Final = ConfigType.DOUBLE
LIST: Final = ConfigType.LIST


class Dynamic(Enum):
    """Scope of changes of a broker key on a running broker."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigError(TidemarkError, ValueError):
    """A configuration cannot be used; the message has key, value and allowed values."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        shown = "" if value is None else "=" + escape(str(value), _SHOWN_MAX)
        super().__init__(f"{escape(key, _SHOWN_MAX)}{shown}: {allowed}")
        self.key, self.value, self.allowed = key, value, allowed


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key.

    Attributes:
        name: As in `server.properties` or in a topic's configs.
        type: Decides how text becomes a value.
        default: Text as Apache Kafka prints it; None: no value.
        doc: One line of help.
        low: Smallest number allowed (inclusive), None for the smallest of the type.
        high: Largest number allowed (inclusive), None for the largest of the type.
        also: Allowed numbers outside [low, high].
        choices: Allowed words, for lists the allowed elements; empty: any.
        ignore_case: `choices` match in any case.
        non_empty: An empty text or list is refused.
        required: There is no default, the key must be set.
        dynamic: True if IncrementalAlterConfigs may set it on a running broker.
        effect: False for a key of Kafka that has no effect here.
        internal: Not shown unless it was set.
        server_key: Topic keys only: the broker key that gives the default.
        resource: The value is a class, path, URL or command, so clients must not set it.
    """

    name: str
    type: ConfigType
    default: str | None
    doc: str
    low: float | None = None
    high: float | None = None
    also: tuple[int, ...] = ()
    choices: tuple[str, ...] = ()
    ignore_case: bool = False
    non_empty: bool = False
    required: bool = False
    dynamic: Dynamic = Dynamic.READ_ONLY
    effect: bool = True
    internal: bool = False
    server_key: str | None = None
    resource: bool = False

    @property
    def is_sensitive(self) -> bool:
        """True if the value is a secret: never logged, never described."""
        return self.type is ConfigType.PASSWORD

    def allowed(self) -> str:
        """The allowed values in words, for error texts and the docs page."""
        kind = self.type
        if kind is ConfigType.BOOLEAN:
            return "must be true or false"
        if kind in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG):
            low, high = self._integer_bounds()
            extra = "".join(f" or {number}" for number in self.also)
            return f"must be a whole number from {low} to {high}{extra}"
        if kind is ConfigType.DOUBLE:
            if self.low is None and self.high is None:
                return "must be a number"
            top = "" if self.high is None else f" to {self.high:g}"
            return f"must be a number from {self.low or 0:g}{top}"
        if self.choices:
            words = ", ".join(self.choices)
            if kind is ConfigType.LIST:
                return f"must be a comma separated list of: {words}"
            return f"must be one of: {words}"
        if kind is ConfigType.LIST:
            return "must be a comma separated list" + (", not empty" if self.non_empty else "")
        return "must not be empty" if self.non_empty else "any text"

    def parse(self, text: str | None) -> Value:
        """Turn text into a value of this key's type.

        Args:
            text: Text of the value; surrounding white space is ignored. None: no value.

        Raises:
            ConfigError: The text is not of the type or not in the allowed range.
        """
        if text is None:
            return None
        text = text if self.type is ConfigType.PASSWORD else text.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                return self._boolean(text)
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                return self._integer(text)
            case ConfigType.DOUBLE:
                return self._double(text)
            case ConfigType.LIST:
                return self._list(text)
            case _:
                return self._word(text)

    def show(self, value: Value) -> str | None:
        """Return the text of Apache Kafka's DescribeConfigs for a parsed value."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return _java_double(value)
        return str(value)

    def _refuse(self, text: str) -> ConfigError:
        return ConfigError(self.name, "[hidden]" if self.is_sensitive else text, self.allowed())

    def _boolean(self, text: str) -> bool:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise self._refuse(text)
        return lowered == "true"

    def _integer_bounds(self) -> tuple[int, int]:
        top = 1 << (INTEGER_BITS[self.type.name] - 1)
        low = -top if self.low is None else int(self.low)
        high = top - 1 if self.high is None else int(self.high)
        return low, high

    def _integer(self, text: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 40:
            raise self._refuse(text)
        number = int(text)
        low, high = self._integer_bounds()
        if not low <= number <= high and number not in self.also:
            raise self._refuse(text)
        return number

    def _double(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise self._refuse(text) from None
        low = float("-inf") if self.low is None else self.low
        high = float("inf") if self.high is None else self.high
        if not low <= number <= high:  # False for nan, too
            raise self._refuse(text)
        return number

    def _list(self, text: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in text.split(",")) if text else ()
        if self.non_empty and not words:
            raise self._refuse(text)
        if words and not all(words):
            raise ConfigError(self.name, text, f"{self.allowed()}; an element is empty")
        if self.choices:
            allowed = set(self.choices)
            if not allowed.issuperset(words):
                raise self._refuse(text)
        return tuple(dict.fromkeys(words))  # without duplicates, as in Kafka

    def _word(self, text: str) -> str:
        if self.non_empty and not text:
            raise self._refuse(text)
        if self.choices:
            known = (
                text.lower() in {word.lower() for word in self.choices}
                if self.ignore_case
                else text in self.choices
            )
            if not known:
                raise self._refuse(text)
        return text


def _java_double(value: float) -> str:
    """Print a double as Java does: always with a fraction, exponent as `E308`."""
    text = repr(value)
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"
