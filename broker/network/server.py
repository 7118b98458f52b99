"""Listening sockets and their connections.

One event loop owns everything here. The server accepts, counts connections per address and enforces
deadlines twice a second. It stops in order: no new connections, then the answers of running
requests, then the end.
"""

import asyncio
import contextlib
import heapq
import logging
import socket
import sys
from collections import Counter as Tally
from collections.abc import Callable, Sequence

from broker.network.authentication import AUTHENTICATION_FAILED, NO_AUTHENTICATION, Session
from broker.network.buffers import FrameBuffers
from broker.network.connection import Connection
from broker.network.connection_budget import ConnectionBudget
from broker.network.dispatch import Dispatcher, Peer, decoders
from broker.network.limits import ListenerAddress, NetworkLimits
from broker.network.listening import listen
from broker.network.registry import HandlerTable
from broker.network.request_memory import RequestMemory, of_frames, of_objects
from broker.network.shared import ReadFailures, Shared
from broker.network.time_slices import TimeSlices
from broker.network.unsent import Unsent
from broker.network.wide_requests import WideRequests
from runtime.disk import FileRegion
from runtime.disk_errors import (
    MORE_FILES,
    descriptors_for_connections,
    descriptors_max,
    open_descriptors,
    remedy,
)
from runtime.incidents import Incident
from runtime.log_context import LimitedLog, escape
from runtime.metrics import Registry
from runtime.ports import Ports
from runtime.scheduler import Timer

log = logging.getLogger(__name__)

SCRATCH_BYTES = 64 * 1024
SWEEP_MS = 500
GIVES_WAY_MS = 1_000
"""A connection idle for this long may be closed so that a file or a new connection can open."""
ACCEPTS_MAX = 64
"""Connections accepted in one wake-up."""


class Server(Shared):
    """All connections of one kind of listener: of clients, or of controllers.

    Attributes:
        bound: Listener name -> bound (host, port), after `start`.
        served: Api keys that clients are served.
    """

    def __init__(self, handlers: HandlerTable, limits: NetworkLimits, ports: Ports) -> None:
        """Open nothing before `start`; the pool `log-reads` reads cold file regions."""
        metrics = ports.metrics
        self.limits, self.clock, self.disk = limits, ports.clock, ports.disk
        decoding = decoders(ports.executors)
        decoded = RequestMemory(
            limits.decoded_bytes_max, self.clock, self._soon, of_objects(metrics)
        )
        self.wide = WideRequests(decoded, decoding)
        self.dispatcher = Dispatcher(handlers, metrics, decoding, self.wide, self.clock)
        self.scratch = bytearray(SCRATCH_BYTES)
        self.buffers = FrameBuffers()
        self.memory = RequestMemory(
            limits.requests_bytes_max, self.clock, self._soon, of_frames(metrics)
        )
        self.slices = TimeSlices(self.clock, self._soon)
        self.served = frozenset(int(handler.api_key) for handler in handlers)
        self.bound: dict[str, tuple[str, int]] = {}
        shared = limits.descriptors_max or descriptors_for_connections()
        self._budget = ConnectionBudget(descriptors_max(), shared)
        self._connections_max = sys.maxsize  # by descriptors
        self._giving_way = 0  # idle connections, at the last sweep
        self._turned_away = 0  # for lack of descriptors, since the last sweep
        self._limited = LimitedLog(ports.clock)
        self.read_failures = ReadFailures(metrics)
        self.loop: asyncio.AbstractEventLoop
        self._scheduler, self._pool = ports.scheduler, ports.executors.reads
        self._isolation = ports.isolation
        self._listening: list[socket.socket] = []
        self._connections: set[Connection] = set()
        self.unsent = Unsent(limits.all_unsent_bytes_max, self._soon, self._connections, metrics)
        self._per_ip: Tally[str] = Tally()
        # since when (monotonic); the oldest first
        self._unauthenticated: dict[Connection, int] = {}
        self._timers: list[Timer] = []
        self._cold_reads: set[asyncio.Task[bytes]] = set()
        self._all_closed: asyncio.Event | None = None
        self._metrics(metrics)

    def _metrics(self, metrics: Registry) -> None:
        # Several servers of a process share these metrics, so they are changed and never set.
        self._open = metrics.gauge(
            "kafka_server_socket_server_metrics_connection_count",
            "Open connections, by listener.",
            ("listener",),
        )
        self._accepted = metrics.counter(
            "kafka_server_socket_server_metrics_connection_creation_total",
            "Connections accepted, by listener.",
            ("listener",),
        )
        self._refused = metrics.counter(
            "kafka_server_socket_server_metrics_connection_refused_total",
            "Connections closed at accept because of a limit, by listener.",
            ("listener",),
        )
        self._short_of_descriptors = metrics.counter(
            "tidemark_connections_refused_descriptors_total",
            "Connections closed at accept so that files can still be opened, by listener.",
            ("listener",),
        )
        self._given_up = metrics.counter(
            "tidemark_connections_closed_descriptors_total",
            "Idle connections closed because files or new ones needed their descriptors.",
            ("listener",),
        )
        self._killed = metrics.counter(
            "kafka_server_socket_server_metrics_connection_killed_total",
            "Connections closed by the broker because of what the peer did, by listener.",
            ("listener",),
        )

    # -- lifecycle

    async def start(self, listeners: Sequence[ListenerAddress]) -> None:
        """Bind all listeners and begin to accept.

        Raises:
            OSError: An address cannot be bound; no listener is left bound.
        """
        self.loop = asyncio.get_running_loop()
        self._isolation.add(self, self._cut_off)
        bound: list[list[socket.socket]] = []
        try:
            for listener in listeners:
                # On a thread: resolving a name takes as long as the name server does.
                bound.append(await self._pool.run(listen, listener, self.limits))
                self._listening += bound[-1]
        except OSError:
            self._stop_listening()
            raise
        for listener, sockets in zip(listeners, bound, strict=True):
            self._begin(listener, sockets)
        self._timers = [
            self._scheduler.every(SWEEP_MS, self._sweep, "connection deadlines"),
            self._scheduler.every(10_000, self.buffers.trim, "frame buffers"),
        ]

    def _begin(self, listener: ListenerAddress, sockets: list[socket.socket]) -> None:
        port = sockets[0].getsockname()[1]
        self.bound[listener.name] = (listener.host or "0.0.0.0", port)
        self._open.inc(0, listener.name)
        for sock in sockets:
            self.loop.add_reader(sock, self._accept, sock, listener)

    async def stop(self, grace_ms: int = 5_000) -> None:
        """Stop accepting, wait up to `grace_ms` for running requests, then close all."""
        self._stop_listening()
        for connection in list(self._connections):
            if connection.is_idle:
                connection.close("the broker is shutting down", quiet=True)
        if self._connections and grace_ms > 0:
            self._all_closed = asyncio.Event()
            for connection in list(self._connections):
                connection.finish()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_ms / 1000):
                    await self._all_closed.wait()
        for connection in list(self._connections):
            connection.close("the broker is shutting down", quiet=True)
        for timer in self._timers:
            timer.cancel()
        for task in list(self._cold_reads):
            task.cancel()

    def _soon(self, function: Callable[[], None]) -> None:
        self.loop.call_soon(function)

    def _stop_listening(self) -> None:
        for sock in self._listening:
            self.loop.remove_reader(sock)
            sock.close()
        self._listening.clear()

    # -- connections

    def _accept(self, listening: socket.socket, listener: ListenerAddress) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of descriptors: new connections wait in the backlog until some are free again.
                self._short_of_descriptors.inc(1, listener.name)
                line = Incident.EXHAUSTED.line(
                    what="connections cannot be accepted", error=error, remedy=remedy(error)
                )
                self._limited.error(log, line)
                self.loop.remove_reader(listening)
                self._scheduler.call_later(
                    SWEEP_MS, lambda: self._accept_again(listening, listener)
                )
                return
            self._admit(sock, (str(address[0]), int(address[1])), listener)

    def _accept_again(self, listening: socket.socket, listener: ListenerAddress) -> None:
        if listening.fileno() >= 0:
            self.loop.add_reader(listening, self._accept, listening, listener)

    def _admit(
        self, sock: socket.socket, address: tuple[str, int], listener: ListenerAddress
    ) -> None:
        limits, listener_name = self.limits, listener.name
        if not self._isolation.admits(listener_name):
            sock.close()
            return
        host = address[0]
        limit = limits.connections_per_ip_overrides.get(host, limits.connections_per_ip_max)
        is_short = (
            sock.fileno() >= self._budget.shared or len(self._connections) >= self._connections_max
        )
        over = (
            is_short
            or self._per_ip[host] >= limit
            or len(self._connections) >= limits.connections_max
        )
        if over:
            sock.close()
            self._refused.inc(1, listener_name)
            if is_short:
                self._turned_away += 1
                self._short_of_descriptors.inc(1, listener_name)
                line = Incident.DESCRIPTORS.line(
                    what="connections are refused", used=self._budget.shared, remedy=MORE_FILES
                )
                self._limited.error(log, line)
            log.log(
                logging.DEBUG if is_short else logging.INFO,
                "closed connection: peer=%s:%d listener=%s reason=too many connections",
                *address,
                listener_name,
            )
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        self._per_ip[host] += 1
        self._accepted.inc(1, listener_name)
        self._open.inc(1, listener_name)
        session = NO_AUTHENTICATION
        if listener.authenticator is not None:
            session = Session(listener.authenticator)
            if len(self._unauthenticated) >= limits.unauthenticated_max:
                self._refused.inc(1, listener_name)
                next(iter(self._unauthenticated)).close("too many unauthenticated", quiet=True)
        connection = Connection(self, sock, Peer(listener_name, address, session))
        self._connections.add(connection)
        if session.principal is None:
            self._unauthenticated[connection] = self.clock.monotonic_ms()

    def _cut_off(self) -> None:
        for connection in list(self._connections):
            if not self._isolation.admits(connection.peer.listener_name):
                connection.close("this process is cut off by a test", quiet=True)

    def authenticated(self, connection: Connection) -> None:
        """Stop the authentication deadline of a connection."""
        del self._unauthenticated[connection]

    def forget(self, connection: Connection, peer: Peer, reason: str, *, quiet: bool) -> None:
        """Count a closed connection out, and log it."""
        self._connections.discard(connection)
        self._open.inc(-1, peer.listener_name)
        host = peer.address[0]
        self._per_ip[host] -= 1
        if self._per_ip[host] <= 0:
            del self._per_ip[host]
        self._unauthenticated.pop(connection, None)
        if not quiet:
            self._killed.inc(1, peer.listener_name)
        if not quiet or log.isEnabledFor(logging.DEBUG):
            self._log_closed(peer, reason, quiet=quiet)
        if not self._connections and self._all_closed is not None:
            self._all_closed.set()

    def _log_closed(self, peer: Peer, reason: str, *, quiet: bool) -> None:
        text = (
            f"closed connection: peer={peer.address[0]}:{peer.address[1]} "
            f"listener={peer.listener_name} client_id={escape(peer.client_id, 100)} "
            f"reason={escape(reason, 300)}"
        )
        if quiet:
            log.debug("%s", text)
        elif reason == AUTHENTICATION_FAILED:  # a client with a wrong password retries without end
            self._limited.warning(log, text, peer.address[0])
        else:
            log.warning("%s", text)

    def read_cold(self, piece: FileRegion, done: Callable[[bytes | BaseException], None]) -> None:
        """Read a region on a pool thread; `done` gets its bytes or the error, unless stopped."""
        read = asyncio.ensure_future(
            self._pool.run(self.disk.read_at, piece.file, piece.position, piece.size_bytes)
        )
        self._cold_reads.add(read)

        def finish(task: asyncio.Task[bytes]) -> None:
            self._cold_reads.discard(task)
            if not task.cancelled():
                done(task.exception() or task.result())

        read.add_done_callback(finish)

    def _sweep(self) -> None:
        now_ms = self.clock.monotonic_ms()
        for connection in list(self._connections):
            try:
                connection.check_deadlines(now_ms)
            except Exception as error:  # noqa: BLE001 - closes one connection; the others continue
                connection.fail(error)
        for connection, since_ms in list(self._unauthenticated.items()):
            if now_ms - since_ms > self.limits.unauthenticated_ms_max:
                connection.close("not authenticated in time", quiet=True)
        self._close_idle(now_ms)
        self._free_memory(now_ms)
        self.wide.memory.show()
        self.unsent.show()
        self.wide.end_long_waits(now_ms)

    def _free_memory(self, now_ms: int) -> None:
        """Close the slowest sender of a large request if others wait too long for memory."""
        memory, limit_ms = self.memory, self.limits.frame_ms_max
        memory.show()
        if memory.longest_wait_ms(now_ms) <= limit_ms:
            return
        slow = [
            one
            for one in self._connections
            if one.memory_held_ms(now_ms) > limit_ms and memory.is_short_for(one.address)
        ]
        if slow:
            slowest = max(slow, key=lambda one: one.memory_held_ms(now_ms))
            slowest.close(
                f"others wait for its memory, and its request is not complete after {limit_ms} ms"
            )

    def _close_idle(self, now_ms: int) -> None:
        """Close idle connections whose descriptors are needed, the longest idle first."""
        turned_away, self._turned_away = self._turned_away, 0
        budget = self._budget
        if len(self._connections) < budget.noticeable:
            self._connections_max, self._giving_way = sys.maxsize, 0
            return
        idle = [one for one in self._connections if self._gives_way(one, now_ms)]
        self._giving_way = len(idle)
        open_count = open_descriptors()
        self._connections_max = budget.connections_max(open_count, len(self._connections))
        count = budget.connections_to_close(open_count, turned_away)
        if not count:
            return
        given_up = heapq.nsmallest(count, idle, key=lambda one: one.last_active_ms)
        for connection in given_up:
            self._given_up.inc(1, connection.peer.listener_name)
            connection.close("its descriptor is needed", quiet=True)
        line = Incident.DESCRIPTORS.line(
            what=f"{len(given_up)} idle connections are closed (limit={budget.limit})",
            used=open_count,
            remedy=MORE_FILES,
        )
        self._limited.error(log, line)

    def descriptors_for_partitions(self) -> int:
        """How many files new partitions may open, below 0 if too many are open; thread-safe."""
        return self._budget.for_partitions(open_descriptors(), self._giving_way)

    def _gives_way(self, connection: Connection, now_ms: int) -> bool:
        return connection.is_idle and now_ms - connection.last_active_ms >= GIVES_WAY_MS
