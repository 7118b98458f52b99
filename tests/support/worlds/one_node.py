"""A metadata node that is the only voter, on simulated ports under an asyncio loop."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.node import NodeSettings
from metadata_topic.quorum.start.quorum_start import QuorumSettings
from metadata_topic.raft.messages import Node
from runtime.scheduler import Timer
from tests.support.sim.ports import SimPorts
from tests.support.sim.scheduler import ManualScheduler


class LoopedScheduler(ManualScheduler):
    """A test moves the clock; timers without a delay run in the running loop's next turn."""

    __slots__ = ()

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> Timer:
        """Call `fn` once when the clock has moved by `delay_ms`."""
        if delay_ms <= 0:
            return asyncio.get_running_loop().call_soon(fn)
        return super().call_later(delay_ms, fn)


def looped(ports: SimPorts) -> SimPorts:
    """Ports for parts that run under an asyncio loop."""
    return replace(ports, scheduler=LoopedScheduler(ports.clock))


def sole_voter(
    log: MetadataLogConfig | None = None, *, node_id: int = 1, static: bool = False
) -> NodeSettings:
    """The settings of a node that votes alone, named by the configuration where it is `static`."""
    voters = (Node(node_id, "localhost", 9093),) if static else ()
    return NodeSettings(
        quorum=QuorumSettings(is_controller=True, static_voters=voters),
        log=log or MetadataLogConfig(),
    )
