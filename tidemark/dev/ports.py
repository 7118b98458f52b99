"""Whether the ports of development nodes can be had, and which others can.

All are tried before anything is written: a person who starts a second node gets one sentence, with
a command to type that works.
"""

import errno
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from tidemark.dev.settings import HOST, HTTP_ABOVE, PORT_MAX

_STEP: Final = 100

Address = tuple[str, int]
PortsOf = Callable[[int], Sequence[int]]
"""Those that `--port` stands for."""


def refuse_taken_ports(
    configs: Sequence[BrokerConfig], port: int, stands_for: PortsOf, again: Callable[[int], str]
) -> None:
    """Check that each address of some nodes can be listened on.

    Args:
        configs: of the nodes.
        port: what was said by `--port`.
        stands_for: the ports that another `--port` would move.
        again: the command that takes another port.

    Raises:
        ConfigError: names every address that is taken, and a command whose ports are free.
    """
    all_of_them = chain.from_iterable(map(_addresses, configs))
    taken = [(what, at) for what, at in all_of_them if not is_free(at)]
    if not taken:
        return
    shown = " and ".join(f"{host}:{number} ({what})" for what, (host, number) in taken)
    verb = "is" if len(taken) == 1 else "are"
    by_option = {(HOST, one) for one in stands_for(port)}
    if all(at in by_option for _, at in taken) and (free := free_port(port, stands_for)):
        out = f"these ports are free: {again(free)}"
    else:
        out = "name another one with --override"
    raise ConfigError("--port", str(port), f"{shown} {verb} taken; {out}")


def ports_of(port: int) -> tuple[int, int, int]:
    """Those of a lone node: for clients, of the controller, of the pages."""
    return port, port + 1, port + HTTP_ABOVE


def free_port(taken: int, stands_for: PortsOf = ports_of) -> int | None:
    """A port that is free with those that belong to it, above one that is not, or from 1100 on."""
    above = range(taken + _STEP, PORT_MAX + 1, _STEP)
    for port in chain(above, range(1_000 + _STEP, taken, _STEP)):
        if all(is_free((HOST, one)) for one in stands_for(port)):
            return port
    return None


def is_free(address: Address) -> bool:
    """Whether a server could listen there; True also where the reason is another than its port."""
    host, port = address
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError:
        return True
    return all(_can_bind(family, place) for family, _, _, _, place in found)


def _can_bind(family: int, place: object) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As servers do: what closed connections leave behind does not hinder.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)  # type: ignore[arg-type]
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    return True


def _addresses(config: BrokerConfig) -> Iterator[tuple[str, Address]]:
    """The use and the address of each port; those that may be any port are excluded."""
    controllers = set(config.controller_listener_names)
    for one in config.listeners:
        if one.port:
            yield "controller" if one.name in controllers else "clients", (one.host, one.port)
    if config.http_listener is not None and config.http_listener[1]:
        yield "pages", config.http_listener


def typed(arguments: Iterable[str]) -> str:
    """A command line of this program as it can be typed here."""
    return shlex.join([_program(Path(sys.argv[0]), Path.cwd()), *arguments])


def first_steps(address: str, replicas: int = 1) -> str:
    """Say what to type first: a tiered topic, filled, and read by a group."""

    def at(*words: str) -> str:
        return typed([*words, "--bootstrap-server", address])

    create = ["topics", "create", "waves", "--if-not-exists"]
    create += ["--replication-factor", str(replicas)] if replicas > 1 else []
    for one in ("remote.storage.enable=true", "segment.bytes=1048576", "local.retention.bytes=1"):
        create += ["-X", one]
    return f"""
A tiered topic (1 MiB segments, almost nothing kept locally), filled, and read by a group; what is
no longer on local disk comes from the remote tier:
  {at(*create)}
  seq 1 500000 | {at("produce", "waves")}
  {at("consume", "waves", "-G", "readers", "-n", "3")}
  {at("groups", "describe", "readers")}

Watch it happen:
  {at("remote", "segments", "waves")}
"""


def _program(called: Path, here: Path) -> str:
    """The shortest name of the program that was called, from this directory."""
    if called.name != "tidemark" or shutil.which(called.name) == str(called):
        return "tidemark"
    place = called.absolute()
    return str(place.relative_to(here)) if place.is_relative_to(here) else str(place)
