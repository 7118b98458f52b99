"""The tier process: its composition root. `python -m rlm.tier_process LINK_FD PARENT_PID`.

The only module that loads the plugin and the metadata manager. The process always ends with its
broker: the kernel kills it when the parent dies, and it ends by itself when the link does. It
cleans nothing up then; its remains are those of a crash, and the next tier repairs them.
"""

import asyncio
import importlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlm.config import TierConfig
from rlm.deletions import Deletions
from rlm.link.endpoint import Endpoint, Received, Reply
from rlm.link.socket_transport import SocketTransport
from rlm.maintenance.broker_port import BrokerPort, LinkBroker
from rlm.maintenance.removals import RemovedTopicsOfBroker
from rlm.plugin_calls import PluginCalls
from rlm.plugins import Plugins
from rlm.service import Link, TierReceiver
from rlm.workers import EXPIRATION_POOL, LoopWorkers
from rlmm.api import RemovesDeletedTopics
from rlmm.loader import load_metadata_manager
from rsm_plugins.api import RemoteStorageError, StorePlace
from rsm_plugins.loader import load_storage_manager
from rsm_plugins.place import identity_of
from rsm_plugins.settings import public_names
from rsm_plugins.store_faults import StoreFaults, with_faults
from runtime.child_process import die_with_parent
from runtime.clock import Clock, ShiftedClock
from runtime.collector import short_full_passes
from runtime.incidents import Incident
from runtime.log_lines import apply_log_settings, log_to
from runtime.loop_gaps import LoopWatch
from runtime.ports import system_ports
from runtime.process_metrics import register_process

log = logging.getLogger(__name__)

EXIT_ABORTED = 3
_USUAL = ("rlmm.topic_based.manager", "rlmm.topic_based.remover")
"""Modules of the default metadata manager, which are loaded by name."""


def configure_plugins(
    config: TierConfig, broker: BrokerPort, calls: PluginCalls, clock: Clock
) -> Plugins:
    """Load both plugins and configure the storage; the metadata manager is configured to connect.

    Raises:
        ValueError: Key and cause, for the broker's error message.
    """
    storage = load_storage_manager(config.storage_class)
    try:
        storage.configure(config.storage_settings)
        identity = identity_of(storage, config.storage_settings)
    except Exception as error:
        # A third party's plugin may raise anything; its user needs key and cause.
        cause = str(error) if isinstance(error, RemoteStorageError | ValueError) else repr(error)
        raise ValueError(
            f"remote.log.storage.manager.class.name={config.storage_class}: {cause}"
        ) from error
    if not isinstance(storage, StorePlace) and not public_names(storage):
        log.warning(
            "the storage plugin has no store_place, and declares no setting that is not secret: "
            "all brokers with its class count as having one store, whatever theirs is; give it a "
            "store_place (docs/plugin-guide.md): class=%s",
            identity.class_name,
        )
    store_faults = StoreFaults() if config.faults_on_demand else None
    if store_faults is not None:
        storage = with_faults(storage, store_faults)
    deletions = Deletions(storage, clock, config.delete_failing_ms, config.copy_max_ms)
    metadata = load_metadata_manager(config.metadata_class)
    metadata.check(config.metadata_settings)
    metadata.use_clock(clock)

    def connect(client_settings: Mapping[str, str]) -> None:
        metadata.configure({**config.metadata_settings, **client_settings})

    if not isinstance(metadata, RemovesDeletedTopics):
        return Plugins(
            storage, metadata, deletions, connect, store_faults=store_faults, identity=identity
        )
    # Imported here: only a manager with a topic needs it.
    from rlmm.topic_based.removal_ports import RemoverConfig, StoreGate
    from rlmm.topic_based.remover import Remover

    remover = Remover(
        metadata,
        deletions,
        RemovedTopicsOfBroker(broker),
        RemoverConfig(
            cluster_id=config.cluster_id,
            node_id=config.node_id,
            grace_ms=config.delete_grace_ms,
            copy_max_ms=config.copy_max_ms,
        ),
        clock,
        StoreGate(
            watch_call=lambda hangs: calls.call(
                EXPIRATION_POOL, "delete", config.call_max_ms, on_overdue=hangs, writes=True
            ),
            may_write=lambda: calls.may_write,
        ),
    )
    return Plugins(
        storage,
        metadata,
        deletions,
        connect,
        remover=remover,
        unhealthy=lambda: remover.unhealthy,
        yellow=lambda: remover.yellow,
        store_faults=store_faults,
        identity=identity,
    )


def abort(reason: str) -> None:
    """End the process now; the broker starts another one."""
    log.error(Incident.TIER_ENDS.line(reason=reason))
    for handler in logging.getLogger().handlers:
        handler.flush()
    os._exit(EXIT_ABORTED)


def _stop_rather_than_lie(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A callback raised, and its waiters would wait without end: end the process."""
    log.error(
        Incident.DEFECT.line(what=f"a callback failed: {context.get('message')}"),
        exc_info=context.get("exception"),
    )
    abort("a callback failed")


def run(link_fd: int) -> None:
    """Serve the link until it ends."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_stop_rather_than_lie)
    asyncio.set_event_loop(loop)
    ports = system_ports(loop)
    ports = replace(ports, clock=ShiftedClock(ports.clock))
    LoopWatch(ports.metrics, "tidemark_remote_")
    register_process(ports.metrics, "tidemark_tier_")

    def ended() -> None:
        # The answer to Stop must leave first.
        ports.scheduler.call_later(20, lambda: os._exit(0))

    receiver: TierReceiver | None = None

    def take(received: Received, reply: Reply) -> None:
        assert receiver is not None
        receiver(received, reply)

    def configure(config: TierConfig, calls: PluginCalls) -> Plugins:
        apply_log_settings(config.log_level, config.log_format)
        return configure_plugins(config, broker, calls, ports.clock)

    endpoint = Endpoint(take, lambda: os._exit(0))
    broker = LinkBroker(endpoint)
    receiver = TierReceiver(
        configure,
        lambda threads: LoopWorkers(loop, threads, ports.clock),
        ports,
        Link(broker=broker, tell=endpoint.tell, abort=abort, ended=ended),
    )
    SocketTransport(socket.socket(fileno=link_fd), loop, endpoint)
    loop.run_forever()


def _handed_over(socket_fd: int) -> int:
    """Import the tier's modules, then wait for the link and the lock, whose descriptor stays open.

    Ends the process if the broker ends first.
    """
    for name in _USUAL:
        importlib.import_module(name)
    with socket.socket(fileno=socket_fd) as broker:
        _, fds, _, _ = socket.recv_fds(broker, 1, 2)
    if len(fds) != 2:
        os._exit(0)
    return fds[0]


def main() -> None:
    """Entry point, with the arguments that the broker gives."""
    link_fd, parent_pid = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent_pid)
    # Ctrl-C reaches the whole terminal group, a service manager may signal all processes: the
    # broker decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log_to(sys.stderr, process="tier")
    with short_full_passes():
        run(_handed_over(link_fd) if "--wait" in sys.argv else link_fd)


if __name__ == "__main__":
    main()
