"""What a case stands on: a broker, connections to it, topics of its own."""

import uuid
from typing import Self

from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.raw_client import RawClient, create_topic


class Stage:
    """One case's broker and connections; use it in a `with` block.

    Attributes:
        broker: which gets the bad input.
        client: a connection to it.
        connections: all of the case, `client` first.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.connections: list[RawClient] = []
        self._closed: set[str] = set()
        self._log_start = len(broker.log_text())
        self.client = self.connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.connections:
            client.socket.close()

    def connect(self) -> RawClient:
        """Another connection, closed with the stage."""
        made = RawClient(self.broker)
        self.connections.append(made)
        return made

    def topic(self, **configs: str) -> str:
        """Create a topic; `cleanup_policy` stands for `cleanup.policy`."""
        name = f"bad-{uuid.uuid4().hex[:8]}"
        create_topic(self.client, name, **configs)
        return name

    @property
    def log(self) -> str:
        """What the broker has logged since the case began."""
        return self.broker.log_text()[self._log_start :]

    def closed(self, reason: str, client: RawClient | None = None) -> None:
        """The connection ends without an answer, with exactly one line of cause and peer."""
        client = client or self.client
        assert client.is_closed(), "bytes came in place of the end"
        self.closes(reason, client)

    def closes(self, reason: str, client: RawClient) -> None:
        """The broker says that it closes the connection, in exactly one line."""
        peer = f"peer={client.address[0]}:{client.address[1]} "
        until(lambda: peer in self.log, f"a log line about {peer}", deadline_s=20)
        lines = [line for line in self.log.splitlines() if peer in line]
        assert len(lines) == 1, lines
        assert reason in lines[0], lines[0]
        self._closed.add(peer)

    def unexpected_ends(self) -> list[str]:
        """Lines about connections that the broker closed though no case has asked for it."""
        return [
            line
            for line in self.log.splitlines()
            if "closed connection: " in line and not any(peer in line for peer in self._closed)
        ]
