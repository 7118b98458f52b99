"""The tier process: its composition root. `python -m rlm.tier_process LINK_FD PARENT_PID`.

The one file that loads the plugin and the metadata manager. The process ends with its broker, in
whatever way that ends: the kernel kills it when the parent dies, and it ends by itself when the
link does. It cleans nothing up then; what it leaves is what a crash leaves, and the next one
repairs that.
"""

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from rlm.broker_port import LinkBroker
from rlm.config import TierConfig
from rlm.link import Endpoint
from rlm.performer import EXPIRATION_POOL
from rlm.plugin_calls import PluginCalls
from rlm.plugins import Plugins
from rlm.service import TierService
from rlm.socket_transport import SocketTransport
from rlm.workers import LoopWorkers
from rlmm.loader import load_metadata_manager
from rlmm.red import RedText
from rsm_plugins.api import RemoteStorageError
from rsm_plugins.loader import load_storage_manager
from runtime.clock import SystemClock
from runtime.dice import SystemDice
from runtime.disk import Disk
from runtime.scheduler import LoopScheduler

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
EXIT_ABORTED = 3


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent dies; end now if that happened already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        os._exit(0)


def configure_plugins(config: TierConfig, broker: LinkBroker, calls: PluginCalls) -> Plugins:
    """Load both plugins and configure the storage; the metadata manager is configured to connect.

    Raises:
        ValueError: key and cause, for the broker's last words.
    """
    storage = load_storage_manager(config.storage_class)
    try:
        storage.configure(config.storage_settings)
    except Exception as error:
        # Whatever a plugin of somebody else raises, its user wants to know key and cause.
        cause = str(error) if isinstance(error, RemoteStorageError | ValueError) else repr(error)
        raise ValueError(
            f"remote.log.storage.manager.class.name={config.storage_class}: {cause}"
        ) from error
    metadata = load_metadata_manager(config.metadata_class)
    manager: Any = metadata  # what it may have beyond the interface
    if hasattr(manager, "check"):
        manager.check(config.metadata_settings)

    def connect() -> None:
        metadata.configure(config.metadata_settings)

    if not hasattr(manager, "led_partitions"):
        return Plugins(storage, metadata, connect)
    # Imported here: only a manager with a topic needs it.
    from rlm.removed_topics import RemovedTopicsOfBroker
    from rlmm.topic_based.remover import Remover

    unreadable: Callable[[], tuple[RedText, ...]] = getattr(manager, "unreadable", tuple)
    remover = Remover(
        manager,
        storage,
        RemovedTopicsOfBroker(broker),
        cluster_id=config.cluster_id,
        node_id=config.node_id,
        clock=SystemClock(),
        grace_ms=config.delete_grace_ms,
        copy_max_ms=config.copy_max_ms,
        watch_call=lambda hangs: calls.call(
            EXPIRATION_POOL, "delete", config.call_max_ms, on_overdue=hangs, writes=True
        ),
        may_write=lambda: calls.may_write,
    )
    return Plugins(
        storage,
        metadata,
        connect,
        remove_deleted=remover.run_pass,
        red=lambda: (*remover.red, *unreadable()),
        lead=getattr(manager, "lead", None),
        counts=getattr(manager, "counts", dict),
        failure=lambda: getattr(manager, "failure", None),
    )


def abort(reason: str) -> None:
    """End the process now; the broker starts another one."""
    log.error("tier process ends itself: %s", reason)
    for handler in logging.getLogger().handlers:
        handler.flush()
    os._exit(EXIT_ABORTED)


def _stop_rather_than_lie(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A callback raised: whoever waited for it would wait for ever."""
    log.error("a callback failed: %s", context.get("message"), exc_info=context.get("exception"))
    abort("a callback failed")


def run(link_fd: int) -> None:
    """Serve the link until it ends."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_stop_rather_than_lie)
    asyncio.set_event_loop(loop)
    scheduler = LoopScheduler(loop)

    def ended() -> None:
        # The answer to Stop must leave first.
        scheduler.call_later(20, lambda: os._exit(0))

    service: TierService | None = None

    def take(received: object, reply: object) -> None:
        assert service is not None
        service(received, reply)  # type: ignore[arg-type]

    endpoint = Endpoint(take, lambda: os._exit(0))
    broker = LinkBroker(endpoint)
    service = TierService(
        broker=broker,
        tell=endpoint.tell,
        configure_plugins=lambda config, calls: configure_plugins(config, broker, calls),
        make_workers=lambda threads: LoopWorkers(loop, threads, SystemClock()),
        clock=SystemClock(),
        scheduler=scheduler,
        disk=Disk(),
        dice=SystemDice(),
        abort=abort,
        ended=ended,
    )
    SocketTransport(socket.socket(fileno=link_fd), loop, endpoint)
    loop.run_forever()


def main() -> None:
    """Start as the broker starts it."""
    link_fd, parent_pid = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent_pid)
    # Ctrl-C reaches the whole terminal group, a service manager may signal all processes: the
    # broker decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s tier %(name)s: %(message)s",
        stream=sys.stderr,
    )
    run(link_fd)


if __name__ == "__main__":
    main()
