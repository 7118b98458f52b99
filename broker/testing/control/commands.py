"""Commands by name: each takes a JSON object and returns one.

Parts of the broker add their commands here; `listener` receives them.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from kafka_protocol.errors import TidemarkError

Command = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

_NEEDED: Final = object()


class ControlError(TidemarkError):
    """A command cannot be carried out; the message is one line for the caller.

    Attributes:
        status: Of HTTP, 400 to 499.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class ControlCommands:
    """The commands of one broker."""

    def __init__(self) -> None:
        self._commands: dict[str, Command] = {}

    def add(self, name: str, handler: Command) -> None:
        """Let `handler` carry out the command `name`.

        A `TidemarkError` becomes an answer with its message.
        """
        assert name not in self._commands, f"the command {name} is added twice"
        self._commands[name] = handler

    async def run(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Carry out a command.

        Raises:
            ControlError: There is no such command, or it refuses.
        """
        handler = self._commands.get(name)
        if handler is None:
            known = ", ".join(sorted(self._commands)) or "none yet"
            raise ControlError(f"there is no command {name[:100]!r}; there are: {known}", 404)
        return await handler(arguments)


def text_of(arguments: Mapping[str, Any], name: str, default: Any = _NEEDED) -> str:
    """Take a text from the arguments of a command.

    Raises:
        ControlError: It is missing and has no default, or is something else.
    """
    return str(_value_of(arguments, name, str, default))


def number_of(arguments: Mapping[str, Any], name: str, default: Any = _NEEDED) -> int:
    """Take a whole number from the arguments of a command.

    Raises:
        ControlError: It is missing and has no default, or is something else.
    """
    return int(_value_of(arguments, name, int, default))


def _value_of(arguments: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = arguments.get(name, default)
    if value is _NEEDED:
        raise ControlError(f"{name} is missing")
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = "a text" if kind is str else "a whole number"
        raise ControlError(f"{name}={str(value)[:100]!r}: must be {wanted}")
    return value
