"""The network between nodes: a proxy in front of each, and links that can be cut.

Nodes know each other by the proxies' addresses alone. A connection's first request names its sender
(`raft-client-3`, `broker-3-fetcher-0`, of Kafka also `3` alone), so bytes of one pair and one
direction can be held back. Bytes of a cut link arrive late, as on a network that sends again;
nothing that was sent is dropped or doubled. Clients of a test go to the nodes' own ports, past the
cuts: a leader that is alone must not say yes to them.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

from tests.support.brokers.process import free_ports

HOST = "127.0.0.1"
_HEAD_BYTES = 14  # size, api key, version, correlation id, length of the client id
_SENDER = re.compile(r"(?:\A|-)(\d+)(?:-|\Z)")
_CHUNK_BYTES = 1 << 16

BROKERS_LISTENER: Final = {
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT"
    ),
    "inter.broker.listener.name": "REPLICATION",
}
"""Settings of brokers that reach each other by a listener of their own: see `listen_behind`."""

Link = tuple[int, int]
"""(from, to): node ids."""


class Links:
    """Use it in an `async with` block.

    Attributes:
        ports: where each node is reached by the others.
    """

    def __init__(self, own_ports: Mapping[int, int]) -> None:
        """`own_ports`: where each node listens itself."""
        self._own_ports = dict(own_ports)
        self.ports = dict(zip(own_ports, free_ports(len(own_ports)), strict=True))
        self._open: dict[Link, asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        for node_id, port in self.ports.items():
            self._servers.append(await self._serve(node_id, port))
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self, links: Iterable[Link]) -> None:
        """Hold back what goes from the first to the second of each pair."""
        for link in links:
            self._gate(link).clear()

    def heal(self) -> None:
        """Let everything through, what was held back first."""
        for gate in self._open.values():
            gate.set()

    def around(self, node_id: int) -> tuple[list[Link], list[Link]]:
        """The links from a node to all others, and those to it."""
        others = [one for one in self.ports if one != node_id]
        return [(node_id, one) for one in others], [(one, node_id) for one in others]

    def _gate(self, link: Link) -> asyncio.Event:
        if link not in self._open:
            self._open[link] = asyncio.Event()
            self._open[link].set()
        return self._open[link]

    async def _serve(self, node_id: int, port: int) -> asyncio.Server:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._carry(node_id, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return await asyncio.start_server(accepted, HOST, port)

    async def _carry(
        self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection, from its first request to its end."""
        upstream: asyncio.StreamWriter | None = None
        try:
            head = await reader.readexactly(_HEAD_BYTES)
            name = await reader.readexactly(max(int.from_bytes(head[12:14], signed=True), 0))
            found = _SENDER.search(name.decode(errors="replace"))
            sender = int(found[1]) if found else -1
            await self._gate((sender, target)).wait()
            back, upstream = await asyncio.open_connection(HOST, self._own_ports[target])
            upstream.write(head + name)
            there = self._pump(reader, upstream, self._gate((sender, target)))
            here = self._pump(back, writer, self._gate((target, sender)))
            await asyncio.gather(there, here)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the one side's end is the other's
        finally:
            for one in (writer, upstream):
                if one is not None:
                    one.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await gate.wait()
            writer.write(data)
            await writer.drain()
        await gate.wait()
        raise ConnectionResetError("one side has ended it")


class Network:
    """Proxies before several kinds of listeners of the same nodes, cut together."""

    def __init__(self, node_ids: Iterable[int], *links: Links) -> None:
        self._node_ids, self._links = frozenset(node_ids), links

    def cut_off(self, node_id: int) -> None:
        """Nothing goes between this node and others, but what it says to clients."""
        others = self._node_ids - {node_id}
        for links in self._links:
            links.cut([(node_id, one) for one in others] + [(one, node_id) for one in others])

    def heal(self) -> None:
        for links in self._links:
            links.heal()


def links_before(node_ids: Iterable[int]) -> tuple[dict[int, int], Links]:
    """Ports where nodes are to listen for each other, and proxies before them."""
    ids = list(node_ids)
    own_ports = dict(zip(ids, free_ports(len(ids)), strict=True))
    return own_ports, Links(own_ports)


def listen_behind(links: Links, node: Any, own_port: int, controller: str = "") -> None:
    """Have clients come to a node's own address, brokers by way of its proxy."""
    clients = f"{controller}PLAINTEXT://{node.address}"
    node.settings |= {
        "listeners": f"{clients},REPLICATION://127.0.0.1:{own_port}",
        "advertised.listeners": (
            f"PLAINTEXT://{node.address},REPLICATION://127.0.0.1:{links.ports[node.node_id]}"
        ),
    }
