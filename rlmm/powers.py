"""What a metadata manager can do beyond its interface: asked by name, never guessed.

`isinstance` of a protocol would not do: from Python 3.12 on it sees no method that a wrapper hands
on by `__getattr__`, and a manager with all methods of a power but one would lose it without a word.
"""

from typing import Any, TypeVar, cast

P = TypeVar("P")


def method_names(protocol: type) -> list[str]:
    """The methods that a protocol asks for, in its order, without those of its bases."""
    return [name for name in vars(protocol) if not name.startswith("_")]


def power_of(manager: Any, power: type[P]) -> P | None:
    """The manager as what has the power; None if it has not its first method.

    Raises:
        ValueError: it has the first method, and not all of the others.
    """
    first, *others = method_names(power)
    if not callable(getattr(manager, first, None)):
        return None
    missing = [name for name in others if not callable(getattr(manager, name, None))]
    if missing:
        raise ValueError(
            f"it has the method {first} and so must have all of {power.__name__}; "
            f"no method is called {' or '.join(missing)}"
        )
    return cast("P", manager)
