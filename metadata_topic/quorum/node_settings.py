"""What a metadata node is told by its configuration, and its way to the other nodes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.driver.ports import Transport
from metadata_topic.quorum.start.quorum_start import QuorumSettings
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.messages import Node, Request, Response


class NodeTransport(Transport, Protocol):
    """The way to the other nodes, until it is closed."""

    def close(self) -> None:
        """End all connections; nobody waits for an answer after it."""
        ...


class Alone:
    """The transport of a sole voter, who has nobody to ask."""

    def send(
        self,
        to: Node,
        request: Request,
        timeout_ms: int,
        done: Callable[[Response | None], None],
    ) -> None:
        """Never called."""
        raise AssertionError(f"a node without a transport wants to ask node {to.id}")

    def close(self) -> None:
        """There is nothing to close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What the configuration says.

    Attributes:
        quorum: who votes, and whom to ask.
        raft: of the core; addresses come from `quorum`.
        log: of the metadata log.
        session_timeout_ms: `broker.session.timeout.ms`.
        has_broker: the process is a broker, too. Where its controller is the only one, it sends it
            no heartbeats.
        transport: to the other nodes; the node closes it.
    """

    quorum: QuorumSettings = field(default_factory=lambda: QuorumSettings(is_controller=True))
    raft: RaftConfig = field(default_factory=RaftConfig)
    log: MetadataLogConfig = field(default_factory=MetadataLogConfig)
    session_timeout_ms: int = 9_000
    has_broker: bool = True
    transport: NodeTransport = field(default_factory=Alone)
