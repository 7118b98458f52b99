"""The nodes of a `tidemark.Broker`: one, or brokers beside controllers, each in a process."""

import secrets
import socket
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

from tidemark.dev.settings import (
    BROKER_ID,
    BROKERS_MAX,
    CONTROLLERS_MAX,
    HOST,
    ClusterPorts,
    broker_name,
)
from tidemark.embedded.errors import BrokerError, BrokerStartError
from tidemark.embedded.guarded import Guarded

__tracebackhide__ = True
_CHILD: Final = "tidemark.embedded.child"
_LONE_ID: Final = 1
_LOG_LINES: Final = 20
_LOG_TAIL_BYTES: Final = 16_384
_TAKEN: Final = "Address already in use"
_ATTEMPTS: Final = 5
_CALLERS: Final = 5
"""Frames from where settings are warned of to the caller of `start`."""
STOP_S_MAX: Final = 30.0
_CONTROLLERS_STOP_S: Final = 2.0
"""A leader that reaches no other one takes longer, and loses nothing when it is killed."""


class _Token(str):
    """Of the control listeners; a traceback with the values of variables does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<token>"


class Nodes:
    """Starts and ends processes of nodes, by their ids.

    Attributes:
        brokers: ids of the nodes that serve clients.
        controllers: ids of those that are only controllers.
        guarded: what runs them; None before the first start and after the end.
        starts: how often each node was started.
        offset_ms: how far the clock of the brokers is moved when they start.
        bootstrap_servers: of the brokers; "" before the first start.
        console_urls: of the brokers by id, as they were started last; "" where one has no page.
    """

    def __init__(
        self, brokers: int, controllers: int, settings: Mapping[str, str], start_timeout_s: float
    ) -> None:
        """Say which there are; nothing is started.

        Args:
            brokers: how many.
            controllers: how many; 0: a lone broker is its own one, several have one beside them.
            settings: of the test.
            start_timeout_s: how long a start may take.

        Raises:
            ValueError: there cannot be so many.
        """
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"brokers={brokers}: must be 1 to {BROKERS_MAX}")
        if not 0 <= controllers <= CONTROLLERS_MAX:
            raise ValueError(f"controllers={controllers}: must be 0 to {CONTROLLERS_MAX}")
        if brokers > 1 and not controllers:
            controllers = 1
        self.controllers = range(1, controllers + 1)
        self.brokers = (
            range(BROKER_ID, BROKER_ID + brokers) if controllers else range(_LONE_ID, _LONE_ID + 1)
        )
        self.guarded: Guarded | None = None
        self.starts = dict.fromkeys(self.ids, 0)
        self.offset_ms, self.bootstrap_servers = 0, ""
        self._settings, self._start_timeout_s = settings, start_timeout_s
        self._ports: ClusterPorts | None = None
        self._control_addresses: dict[int, str] = {}
        self.console_urls: dict[int, str] = {}
        self.token = _Token(secrets.token_urlsafe(24))

    @property
    def ids(self) -> tuple[int, ...]:
        """Of all nodes, controllers first."""
        return *self.controllers, *self.brokers

    def running(self) -> dict[int, int]:
        """Processes of the nodes that run, by id, as far as their ends were told."""
        return {} if self.guarded is None else dict(self.guarded.pids)

    def control_address(self, node_id: int) -> str:
        """host:port of a broker's control listener, in its incarnation now."""
        return self._control_addresses[node_id]

    def log_file(self, data: Path, node_id: int) -> Path:
        """The log file of a node, with all its starts."""
        number = node_id - self.brokers[0]
        name = f"controller-{node_id}" if node_id in self.controllers else broker_name(number)
        return data / f"{name}.log"

    # -- lifecycle

    def start(self, node_ids: Iterable[int], data: Path) -> None:
        """Start nodes that do not run; other ports are taken where somebody else was quicker.

        Raises:
            BrokerStartError: one does not start; with the last lines of its log.
        """
        wanted = tuple(node_ids)
        for attempt in range(_ATTEMPTS):
            was_chosen = self._ports is None
            self._ports = self._ports or self._free_ports()
            failed = self._try(wanted, data, self._ports)
            if failed is None:
                return
            words = self.last_words(data, failed)
            if not was_chosen or _TAKEN not in words or attempt + 1 == _ATTEMPTS:
                raise BrokerStartError(f"{self._name(failed)} ended at its start\n{words}")
            self.kill(self.running())
            self._ports = None

    def _try(self, node_ids: Sequence[int], data: Path, ports: ClusterPorts) -> int | None:
        """Start them once: the id of one that ended, None where all are ready."""
        ends_at = time.monotonic() + self._start_timeout_s
        given = {
            "data": str(data),
            "ports": asdict(ports),
            "token": self.token,
            "offset_ms": self.offset_ms,
            "settings": dict(self._settings),
        }
        guarded = self.guarded
        assert guarded is not None
        for node_id in node_ids:
            self.starts[node_id] += 1
            mine = given | {"node": node_id}
            guarded.start(node_id, _CHILD, mine, self.log_file(data, node_id))
            if node_id == 1 and self.controllers:
                said = self._said("formatted", node_id, data, ends_at)
                if said["event"] == "ended":
                    return node_id
        for node_id in node_ids:
            said = self._said("ready", node_id, data, ends_at)
            if said["event"] == "ended":
                return node_id
            self._ready(node_id, said)
        return None

    def _said(self, wanted: str, node_id: int, data: Path, ends_at: float) -> dict[str, Any]:
        assert self.guarded is not None
        try:
            return self.guarded.event(wanted, node_id, ends_at)
        except TimeoutError:
            raise BrokerStartError(
                f"{self._name(node_id)} is not ready within {self._start_timeout_s:g} s "
                f"(start_timeout_s)\n{self.last_words(data, node_id)}"
            ) from None

    def _ready(self, node_id: int, said: Mapping[str, Any]) -> None:
        assert self._ports is not None
        if node_id in self.controllers:
            return
        self._control_addresses[node_id] = str(said["control_address"])
        self.console_urls[node_id] = str(said["console_url"])
        others = self._ports.others
        self.bootstrap_servers = (
            ",".join(f"{HOST}:{port}" for port in (self._ports.broker, *others))
            if others
            else str(said["bootstrap_servers"])
        )
        if node_id == self.brokers[0]:
            for text in said["warnings"]:
                warnings.warn(f"settings of the broker: {text}", stacklevel=_CALLERS)

    def stop(self, node_ids: Iterable[int], data: Path) -> None:
        """Stop nodes as an operator does, brokers before controllers.

        Raises:
            BrokerError: a broker does not end in time, and is killed.
        """
        assert self.guarded is not None
        asked, late = tuple(node_ids), list[int]()
        for group, limit_s in (
            (self.brokers, STOP_S_MAX),
            (self.controllers, _CONTROLLERS_STOP_S),
        ):
            ends_at = time.monotonic() + limit_s
            stopping = [one for one in asked if one in group and self._end("stop", one)]
            for node_id in stopping:
                try:
                    self.guarded.event("ended", node_id, ends_at)
                except TimeoutError:
                    late += [node_id] * (node_id in self.brokers)
                    self.kill([node_id])
        if late:
            raise BrokerError(
                f"{self._name(late[0])} does not stop within {STOP_S_MAX:.0f} s and is killed\n"
                f"{self.last_words(data, late[0])}"
            )

    def kill(self, node_ids: Iterable[int]) -> None:
        """Kill nodes with SIGKILL, and their tiers.

        Raises:
            BrokerError: one does not end.
        """
        assert self.guarded is not None
        for node_id in [one for one in tuple(node_ids) if self._end("kill", one)]:
            try:
                self.guarded.event("ended", node_id, time.monotonic() + STOP_S_MAX)
            except TimeoutError as error:
                text = f"{self._name(node_id)} is killed, and does not end: {error}"
                raise BrokerError(text) from None

    def _end(self, do: str, node_id: int) -> bool:
        """Ask for the end of a node; False where it has ended already."""
        assert self.guarded is not None
        try:
            self.guarded.request(do, node_id)
        except BrokerError:
            if node_id in self.guarded.pids:
                raise
            return False
        return True

    def close(self) -> None:
        """End everything; what starts after this is another cluster."""
        guarded, self.guarded = self.guarded, None
        self._ports, self.offset_ms = None, 0
        if guarded is not None:
            guarded.close()

    # -- inside

    def _name(self, node_id: int) -> str:
        if node_id in self.controllers:
            return f"controller {node_id}"
        return "the broker" if len(self.brokers) == 1 else f"broker {node_id}"

    def _free_ports(self) -> ClusterPorts:
        found = set[int]()
        while len(found) < len(self.ids):
            found.add(free_port())
        broker, *more = found
        count = len(self.controllers)
        return ClusterPorts(broker, tuple(more[:count]), (), tuple(more[count:]))

    def last_words(self, data: Path, node_id: int) -> str:
        """The end of a node's log."""
        file = self.log_file(data, node_id)
        try:
            text = file.read_bytes()[-_LOG_TAIL_BYTES:]
        except OSError as error:
            return f"(its log cannot be read: {error})"
        lines = text.decode(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join([f"last lines of {file}:", *(f"  {line}" for line in lines)])


_PORTS: Final = range(10_000, 32_000)
"""Below those that Linux gives to connections: while the broker is down, no client gets it, least
of all one that tries to connect to it."""
_PORTS_TRIED: Final = 200


def free_port(host: str = HOST) -> int:
    """A port without a listener right now.

    Raises:
        OSError: none of many is free.
    """
    # Not the generator that suites seed: workers would all find the same port, and a test that
    # seeds it would get other numbers.
    for port in SystemRandom().sample(_PORTS, _PORTS_TRIED):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"none of {_PORTS_TRIED} ports of {host} is free")
