"""Runs a server process: signals, exit codes, and the report of a failed start."""

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
from runtime.incidents import Incident
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
"""Errors that the user can correct: reported in one line.

Any other exception is a bug and is logged with its stack.
"""


def _nothing(_: ServerProcess) -> None:
    """Default of `on_started`: do nothing."""


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
        config: Settings of the process.
        make_ports: Makes the ports for the event loop.
        on_started: Called once, when a broker serves clients or a controller has joined the quorum.
        spawn_tier: Starts a tier process.
        extend: Adds parts to a serving broker that are above it; see `broker.testing`.

    Returns:
        The exit code: 0 after a clean stop, 1 after a fatal error. The error has been logged and,
        if the user can correct it, printed as one line on stderr.
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
        log.exception(Incident.PROCESS_DEFECT.line())
        return EXIT_FAILED
    finally:
        waiting.cancel()
        log.info("stopping")
        await server.stop()
        watch.stop()
        if server.fatal.done():
            server.fatal.exception()  # retrieved: a failure of the start was reported above
    return EXIT_OK


def _tell(error: Exception) -> None:
    """Report the fatal error in the log, and on stderr unless both are the same terminal."""
    log.error(Incident.PROCESS_ENDS.line(error=str(error)))
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        sys.stderr.write(f"tidemark: {error}\n")


def _server(
    config: BrokerConfig, ports: Ports, spawn_tier: Spawn, extend: "Extend | None"
) -> ServerProcess:
    """The server for `process.roles`; a controller does not import the broker's modules."""
    if config.is_broker:
        from broker.broker import Broker

        return Broker(config, ports, spawn_tier, extend)
    from broker.controller_server import Controller

    return Controller(config, ports)


def _with_its_clock(config: BrokerConfig, ports: Ports) -> Ports:
    """The ports; with a control listener, their clock can be moved by it."""
    if config.control_listener is None or isinstance(ports.clock, ShiftedClock):
        return ports
    return replace(ports, clock=ShiftedClock(ports.clock))


async def _first_of(*waiting: "asyncio.Future[Any]") -> None:
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
