"""A port of this machine through which connections pass only while it is open."""

import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from socket import SHUT_RDWR, create_connection, socket
from typing import Self


def _pump(source: socket, target: socket) -> None:
    """Pass bytes on until either side ends, then end both."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(SHUT_RDWR)


class Gate:
    """Relays connections from `port` to `target_port`; closed, nobody listens on `port`."""

    def __init__(self, port: int, target_port: int) -> None:
        """Make it closed."""
        self.port, self.target_port = port, target_port
        self._server: socketserver.ThreadingTCPServer | None = None

    def open(self) -> Self:
        """Let connections in from now on."""
        self._server = _Server(("127.0.0.1", self.port), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def close(self) -> None:
        """Take no further connection; those that are open end with their broker."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _handler(self) -> Callable[..., socketserver.BaseRequestHandler]:
        target_port = self.target_port

        class Relay(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError), create_connection(("127.0.0.1", target_port)) as target:
                    back = threading.Thread(target=_pump, args=(target, self.request), daemon=True)
                    back.start()
                    _pump(self.request, target)
                    back.join()

        return Relay


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
