"""How readers travel to executors, so that one without this package says so in one line.

Spark pickles readers by reference to their module, and an executor that lacks it would end in a
long trace. Here the reader travels as bytes inside a function that travels as code: it needs the
standard library only, and turns what is missing into a sentence.
"""

import pickle
from collections.abc import Callable
from typing import Any


class Shipped:
    """Mixed into whatever Spark sends to executors."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes]]:
        """See pickle; the state is that of `__getstate__`."""
        return _unpacker(), (pickle.dumps((type(self), self.__getstate__())),)


def _unpacker() -> Callable[..., Any]:
    """A function without a name in any module, which is why it is pickled with its code."""

    def unpack(packed: bytes) -> Any:
        import pickle
        import socket
        import sys

        try:
            kind, state = pickle.loads(packed)
        except ImportError as error:
            raise ImportError(
                f"{sys.executable} on host {socket.gethostname()} cannot run Tidemark's source:"
                f" {error}; install it for the Python of every executor with: pip install"
                " 'tidemark-broker[spark]'"
            ) from None
        made = kind.__new__(kind)
        made.__dict__.update(state)
        return made

    return unpack
