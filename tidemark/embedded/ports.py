"""A port for a broker that is to have the same one after a restart."""

import socket
from random import SystemRandom
from typing import Final

_PORTS: Final = range(10_000, 32_000)
"""Below those that Linux gives to connections: while the broker is down, no client gets it, least
of all one that tries to connect to it."""
_ATTEMPTS: Final = 200


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on right now.

    Raises:
        OSError: none of many is free.
    """
    # Not the generator that suites seed: workers would all find the same port, and a test that
    # seeds it would get other numbers.
    for port in SystemRandom().sample(_PORTS, _ATTEMPTS):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"none of {_ATTEMPTS} ports of {host} is free")
