"""Connections between nodes of a simulated cluster, as the systems of two machines keep them.

A node opens them through `kafka_client`, whose `Network` this is, and sends frames; at the other
end the product's dispatcher of the controllers' listener serves them. What is lost is sent again,
so that it comes late: bytes stay in order, and a connection outlives a cut and a process that
hangs. A process that ends takes its connections with it, and the other side hears of it, unless the
machine lost its power.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from ssl import SSLContext
from struct import Struct
from typing import TYPE_CHECKING

from broker.network.dispatch import Answer, Dispatcher, Peer
from broker.network.registry import CloseConnection
from kafka_client.transport import Address, Receiver
from metadata_topic.raft.messages import NOBODY, Node

if TYPE_CHECKING:
    from asyncio import Future

    from tests.support.nodes_world.node import ClusterNode
    from tests.support.nodes_world.world import NodesWorld

RETRY_US = 200_000
RETRY_US_MAX = 3_000_000
_SIZE = Struct(">i")
Deliver = Callable[[], object]


class Way:
    """One direction of a connection: what is sent arrives once, in its order."""

    def __init__(self, world: "NodesWorld", source: int, target: int) -> None:
        self._world, self._source, self._target = world, source, target
        self._queue: deque[Deliver] = deque()
        self._retry_us = RETRY_US

    def send(self, deliver: Deliver) -> None:
        """Have it happen when it arrives."""
        self._queue.append(deliver)
        if len(self._queue) == 1:
            self._try()

    def _try(self) -> None:
        net, world = self._world.net, self._world
        if net.is_cut(self._source, self._target) or net.is_lost_for_clients():
            world.at(world.now_us + self._retry_us, self._try)
            self._retry_us = min(2 * self._retry_us, RETRY_US_MAX)
            return
        self._retry_us = RETRY_US
        world.at(net.arrival(), self._arrives)

    def _arrives(self) -> None:
        deliver = self._queue.popleft()
        if self._queue:
            self._try()
        deliver()


class Link:
    """One connection: the client's side is a `Transport`, the other side serves."""

    def __init__(self, source: "ClusterNode", address: Node, receiver: Receiver) -> None:
        target: ClusterNode | None = source.world.addresses.who_answers(address)  # type: ignore[assignment]
        self.source, self.target, self._receiver = source, target, receiver
        self._address = address
        self.source_life, self.target_life = source.life, -1
        self._is_over = self._is_paused = False
        world = source.world
        there, here = source.id, source.id if target is None else target.id
        self._there = Way(world, there, here)
        self._back = Way(world, here, there)
        self._received = bytearray()
        self._frames: deque[Future[Answer | None] | Answer | None] = deque()
        self._peer = Peer("", (f"n{source.id}", 1))
        self._dispatcher: Dispatcher | None = None
        self._unread: deque[bytes] = deque()
        source.links[self] = None
        self._there.send(self._knocks)

    # -- the client's side

    def write(self, data: bytes) -> None:
        self._there.send(partial(self._at_target, partial(self._takes, bytes(data))))

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        while self._unread and not self._is_paused:
            self._hears(self._unread.popleft())

    def abort(self) -> None:
        """Also before it stands."""
        if not self._is_over:
            self._ends()
            self._there.send(partial(self._at_target, self._hung_up))

    def _ends(self) -> None:
        self._is_over = True
        self.source.links.pop(self, None)

    def _at_source(self, fn: Deliver) -> None:
        source = self.source
        if source.life == self.source_life and not self._is_over:
            source.world.at_node(source.world.now_us, source, source.on_loop, fn)

    def _hears(self, data: bytes) -> None:
        if self._is_paused:
            self._unread.append(data)
            return
        left = memoryview(data)
        while left and not self._is_over:
            room = self._receiver.buffer()
            size = min(len(room), len(left))
            room[:size] = left[:size]
            left = left[size:]
            self._receiver.received(size)

    def _loses(self, error: OSError) -> None:
        if not self._is_over:
            self._ends()
            self._receiver.lost(error)

    # -- the other side

    def _knocks(self) -> None:
        """The system takes the connection: also for a process that hangs."""
        target = self.target
        listening = None if target is None else target.listening.get(self._address.port)
        if target is None or not target.up or listening is None:
            if target is None or not target.is_dark:
                reason = ConnectionRefusedError("nobody listens")
                self._back.send(partial(self._at_source, partial(self._loses, reason)))
            return
        self.target_life = target.life
        self._peer.listener_name, self._dispatcher = listening
        target.links[self] = None
        self._back.send(partial(self._at_source, partial(self._receiver.opened, self)))

    def _at_target(self, fn: Deliver) -> None:
        target = self.target
        if target is None or self.target_life < 0:
            return
        if target.world.addresses.who_answers(self._address) is not target:
            self._is_reset()  # the address is another's now, which knows nothing of this
        elif target.up and target.life == self.target_life:
            target.world.at_node(target.world.now_us, target, target.on_loop, fn)
        elif not target.is_dark:
            self._is_reset()

    def _is_reset(self) -> None:
        reason = ConnectionResetError("the process has ended")
        self._back.send(partial(self._at_source, partial(self._loses, reason)))

    def _hung_up(self) -> None:
        assert self.target is not None
        self.target.links.pop(self, None)
        for outcome in self._frames:
            if outcome is not None and not isinstance(outcome, tuple):
                outcome.cancel()
        self._frames.clear()

    def process_ended(self, node: "ClusterNode") -> None:
        """One of the two is no more: the other hears of it."""
        if node is self.target and node.life != self.target_life:
            return
        if node is self.source:
            self._is_over = True
            self._there.send(partial(self._at_target, self._hung_up))
        elif not node.is_dark:
            self._is_reset()

    def _takes(self, data: bytes) -> None:
        """Bytes have come; whole frames are served."""
        received = self._received
        received += data
        while len(received) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(received)[0]
            if len(received) < end:
                return
            frame = bytes(received[_SIZE.size : end])
            del received[:end]
            self._serves(frame)

    def _serves(self, frame: bytes) -> None:
        target = self.target
        assert target is not None
        assert self._dispatcher is not None
        wall_ms, now_ns = target.clock.wall_ms(), target.clock.monotonic_ns()
        try:
            outcome = self._dispatcher.dispatch(
                self._peer, memoryview(bytearray(frame)), wall_ms, now_ns, now_ns
            )
        except CloseConnection as error:
            target.world.breaks("what a node asks is served", f"{target}: {error}")
            return
        self._frames.append(outcome)
        if outcome is not None and not isinstance(outcome, tuple):
            outcome.add_done_callback(lambda _: self._answers())
        self._answers()

    def _answers(self) -> None:
        """Send what is done, in the order of the requests."""
        frames = self._frames
        while frames:
            outcome = frames[0]
            if outcome is not None and not isinstance(outcome, tuple):
                if not outcome.done():
                    return
                if outcome.cancelled():
                    frames.popleft()
                    continue
                error = outcome.exception()
                if error is not None:
                    assert self.target is not None
                    what = f"{self.target}: {error}: {error.__cause__!r}"
                    self.target.world.breaks("what a node asks is served", what)
                    frames.clear()
                    return
                outcome = outcome.result()
            frames.popleft()
            assert outcome is not None
            assert self.target is not None
            data = self.target.bytes_of(outcome[0])
            if data is None:
                self._is_reset()
                frames.clear()
                return
            self._back.send(partial(self._at_source, partial(self._hears, data)))


class NodeNetwork:
    """The `Network` of one node."""

    def __init__(self, node: "ClusterNode") -> None:
        self._node = node

    def connect(
        self, address: Address, tls: SSLContext | None, receiver: Receiver
    ) -> Callable[[], None]:
        """See `kafka_client.transport.Network`."""
        host, port = address
        return Link(self._node, Node(NOBODY, host, port), receiver).abort
