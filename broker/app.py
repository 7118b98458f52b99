"""Runs a broker process: signals, exit codes, and what the user is told when it cannot start."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.node.directories import DirectoryError
from broker.process.server_process import ServerProcess
from broker.remote.process import start_tier_process
from broker.remote.supervisor import Spawn
from broker.remote.tier import TierStartError
from broker.topics.internal import InternalTopicError
from kafka_protocol.errors import KafkaError
from metadata_topic.quorum.errors import QuorumConfigError, UnusableMetadataError
from metadata_topic.quorum.start.format import NotFormattedError
from runtime.clock import ShiftedClock
from runtime.collector import short_full_passes
from runtime.executors import favour_the_loop
from runtime.loop_gaps import LoopWatch
from runtime.ports import Ports, system_ports

if TYPE_CHECKING:
    from broker.broker import Extend

log = logging.getLogger(__name__)

MakePorts = Callable[[asyncio.AbstractEventLoop], Ports]

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1

_EXPECTED: Final = (
    ConfigError,
    DirectoryError,
    InternalTopicError,
    TierStartError,
    NotFormattedError,
    QuorumConfigError,
    UnusableMetadataError,
    KafkaError,
    OSError,
)
"""What the user can repair: told in one line.

Anything else is a mistake of ours, with its stack.
"""


def _nothing(_: ServerProcess) -> None:
    """Nobody waits for the start."""


def run(
    config: BrokerConfig,
    make_ports: MakePorts = system_ports,
    *,
    on_started: Callable[[ServerProcess], None] = _nothing,
    spawn_tier: Spawn = start_tier_process,
    extend: "Extend | None" = None,
) -> int:
    """Run a broker, a controller or both until SIGTERM or SIGINT.

    Args:
        config: its settings.
        make_ports: what it stands on, given its event loop.
        on_started: called once, when clients are served, or the controller takes part.
        spawn_tier: starts a tier process.
        extend: adds what stands above a broker to one that serves; see `broker.testing`.

    Returns:
        The exit code of the process: 0 after a clean stop, 1 after a fatal error, which has been
        logged and, where the user can repair it, printed as one line on stderr.
    """
    favour_the_loop()
    with short_full_passes():
        return asyncio.run(_run(config, make_ports, on_started, spawn_tier, extend))


async def _run(
    config: BrokerConfig,
    make_ports: MakePorts,
    on_started: Callable[[ServerProcess], None],
    spawn_tier: Spawn,
    extend: "Extend | None",
) -> int:
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    server = _server(config, _with_its_clock(config, make_ports(loop)), spawn_tier, extend)
    watch = LoopWatch(server.metrics, "tidemark_")
    waiting = asyncio.ensure_future(asked_to_stop.wait())
    try:
        starting = asyncio.ensure_future(server.start())
        await _first_of(starting, waiting)
        if starting.done():
            starting.result()
            on_started(server)
            await _first_of(waiting, server.fatal)
            if server.fatal.done():
                server.fatal.result()
        else:
            starting.cancel()
            await asyncio.wait({starting})
    except _EXPECTED as error:
        _tell(error)
        return EXIT_FAILED
    except Exception:
        log.exception("the process ends")
        return EXIT_FAILED
    finally:
        waiting.cancel()
        log.info("stopping")
        await server.stop()
        watch.stop()
        if server.fatal.done():
            server.fatal.exception()  # seen: where the start failed by it, that was told
    return EXIT_OK


def _tell(error: Exception) -> None:
    """Say what ended the process, once: on a terminal the log and stderr are one place."""
    log.error("the process ends: %s", error)
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        sys.stderr.write(f"tidemark: {error}\n")


def _server(
    config: BrokerConfig, ports: Ports, spawn_tier: Spawn, extend: "Extend | None"
) -> ServerProcess:
    """What `process.roles` names; a controller does not load what a broker needs."""
    if config.is_broker:
        from broker.broker import Broker

        return Broker(config, ports, spawn_tier, extend)
    from broker.controller_server import Controller

    return Controller(config, ports)


def _with_its_clock(config: BrokerConfig, ports: Ports) -> Ports:
    """Ports whose clock the control listener can move, where there is one."""
    if config.control_listener is None or isinstance(ports.clock, ShiftedClock):
        return ports
    return replace(ports, clock=ShiftedClock(ports.clock))


async def _first_of(*waiting: "asyncio.Future[Any]") -> None:
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
