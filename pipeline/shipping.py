"""How code travels to executors, so that one without this package says so in one line.

Spark pickles readers and functions by reference to their module, and an executor that lacks it
would end in a long trace. Here they travel as bytes inside a function that travels as code: it
needs the standard library only, and turns what is missing into a sentence.
"""

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from runtime.version import install_command

T = TypeVar("T")
R = TypeVar("R")


class Shipped:
    """Mixed into whatever Spark sends to executors."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes]]:
        """The state is that of `__getstate__`."""
        return _unpacker(), (pickle.dumps((type(self), self.__getstate__())),)


def packed_task(task: object) -> bytes:
    """A task for a function that is given to `shipped`."""
    return pickle.dumps(task)


def shipped(function: Callable[[T], R]) -> Callable[[bytes], R]:
    """The same function of packed tasks; this one travels as code.

    Args:
        function: importable on executors that have this package.
    """
    load, packed_function = _loader(), pickle.dumps(function)

    def call(packed: bytes) -> Any:  # its annotations travel, too: no names of this module
        function = load(packed_function)
        return function(load(packed))

    return call


def _unpacker() -> Callable[..., Any]:
    load = _loader()

    def unpack(packed: bytes) -> Any:
        kind, state = load(packed)
        made = kind.__new__(kind)
        made.__dict__.update(state)
        return made

    return unpack


def _loader() -> Callable[[bytes], Any]:
    """A function without a name in any module, which is why it is pickled with its code."""
    command = install_command("spark")

    def load(packed: bytes) -> Any:
        import pickle
        import socket
        import sys

        try:
            return pickle.loads(packed)
        except ImportError as error:
            raise ImportError(
                f"{sys.executable} on host {socket.gethostname()} cannot run Tidemark's code:"
                f" {error}; set PYSPARK_PYTHON to a Python that has it on every executor, or"
                f" install it there: {command}"
            ) from None

    return load
