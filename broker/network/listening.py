"""The listening sockets of a listener: one for each address of its name.

`localhost` is 127.0.0.1 and ::1, and clients try either first. An address that this machine does
not have (a name in /etc/hosts, IPv6 switched off) is skipped if another one can be bound.
"""

import errno
import logging
import socket
from contextlib import ExitStack
from typing import Any, Final

from broker.network.limits import ListenerAddress, NetworkLimits

log = logging.getLogger(__name__)

_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT})
_TRIES: Final = 10
"""Attempts to find a port that is free at all addresses, where the system chooses the port."""

_Address = tuple[socket.AddressFamily, tuple[Any, ...]]
"""Family, and the argument of `bind`: host, port, and for IPv6 flow and scope."""


def listen(listener: ListenerAddress, limits: NetworkLimits) -> list[socket.socket]:
    """Bind a listener's name on all its addresses, on the same port.

    DIFFERS: Kafka binds the first address, and clients that try another are refused.

    Raises:
        OSError: Names the listener; no address is left bound.
    """
    tries = _TRIES if listener.port == 0 else 1
    while True:
        try:
            return _listen(listener, limits)
        except OSError as error:
            tries -= 1
            if tries == 0 or error.errno != errno.EADDRINUSE:
                shown = f"{listener.name}://{listener.host}:{listener.port}"
                raise OSError(error.errno, f"cannot listen on {shown}: {error}") from error


def _listen(listener: ListenerAddress, limits: NetworkLimits) -> list[socket.socket]:
    addresses = _addresses(listener)
    both = len({family for family, _ in addresses}) > 1
    port, not_here = listener.port, OSError(errno.EADDRNOTAVAIL, "the name has no address")
    with ExitStack() as undo:
        bound: list[socket.socket] = []
        for family, (host, _, *scope) in addresses:
            try:
                sock = _bound(family, (host, port, *scope), limits, is_one_of_two=both)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                not_here = error
                log.info("not bound: listener=%s address=%s: %s", listener.name, host, error)
                continue
            undo.callback(sock.close)
            bound.append(sock)
            port = sock.getsockname()[1]
        if not bound:
            raise not_here
        undo.pop_all()
    return bound


def _addresses(listener: ListenerAddress) -> list[_Address]:
    """All addresses of a name, without duplicates; an empty name means all, as in Kafka."""
    infos = socket.getaddrinfo(
        listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((family, address) for family, _, _, _, address in infos))


def _bound(
    family: socket.AddressFamily,
    address: tuple[object, ...],
    limits: NetworkLimits,
    *,
    is_one_of_two: bool,
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6 and is_one_of_two:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if limits.receive_buffer_bytes > 0:
            # Inherited by accepted sockets; must be set before the window is negotiated.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(max(limits.backlog, 1))
    except OSError:
        sock.close()
        raise
    return sock
