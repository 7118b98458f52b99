"""Requests to other controllers over TCP: the transport of a replica of the metadata log.

One connection for each address, made when it is first needed. A dead peer costs its own requests
their time and nobody else's. All of it runs on the event loop's thread; a request is no task.

Connections are in the clear. TLS and SASL are missing here as on the broker's listeners.
"""

from typing import Final

from metadata_topic.quorum.wire.peer_calls import Call, Done
from metadata_topic.quorum.wire.peer_link import Link, LinkSettings
from metadata_topic.quorum.wire.rpc import WireIdentity
from metadata_topic.raft.messages import Node, Request
from runtime.executors import Executors
from runtime.scheduler import Scheduler

__all__ = ["Done", "LinkSettings", "Peers", "peers_of"]

POOL: Final = "quorum-peers"
_THREADS: Final = 4
"""Names that no server answers for keep some of them busy for seconds."""
_KEPT_LINKS: Final = 32
"""Addresses change over the years; of more than these, the unused are forgotten."""


class Peers:
    """Sends requests of the quorum to other nodes; use it from the event loop's thread only."""

    def __init__(self, settings: LinkSettings, scheduler: Scheduler, executors: Executors) -> None:
        """Nothing is opened before the first `send`.

        Args:
            settings: of all connections.
            scheduler: of the event loop.
            executors: their pool `quorum-peers` looks names up and decodes long answers.
        """
        self._settings, self._scheduler = settings, scheduler
        self._pool = executors.pool(POOL, _THREADS)
        self._links: dict[tuple[str, int], Link] = {}
        self._closed = False

    def send(self, to: Node, request: Request, timeout_ms: int, done: Done) -> None:
        """Ask `to`; `done` is called once, later, on the loop's thread.

        Args:
            to: whom; only host and port matter.
            request: what.
            timeout_ms: for all of it: name, connection, answer.
            done: gets the answer; None if there is none in time, or none that can be read.
        """
        call = Call(request, done, self._scheduler)
        if self._closed:
            call.finish(None)
            return
        link = self._link((to.host, to.port))
        call.expire_after(timeout_ms, lambda: link.expired(call, timeout_ms))
        link.send(call)

    def close(self) -> None:
        """Close all connections; requests end without an answer, later ones at once."""
        self._closed = True
        for link in self._links.values():
            link.end("closed", quiet=True)
        self._links.clear()

    def _link(self, address: tuple[str, int]) -> Link:
        link = self._links.get(address)
        if link is None:
            if len(self._links) >= _KEPT_LINKS:
                self._links = {at: one for at, one in self._links.items() if one.is_in_use}
            link = Link(address, self._settings, self._scheduler, self._pool)
            self._links[address] = link
        return link


def peers_of(
    identity: WireIdentity, node_id: int, scheduler: Scheduler, executors: Executors
) -> Peers:
    """The transport of node `node_id`, with Kafka's client id of a replica."""
    settings = LinkSettings(identity=identity, client_id=f"raft-client-{node_id}")
    return Peers(settings, scheduler, executors)
