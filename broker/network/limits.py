"""How much one connection, one address and all together may take."""

from dataclasses import dataclass, field
from typing import Final

from broker.network.authentication import Authenticator

NEVER_MS: Final = 2**63 - 1
NO_BOUND: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """Where to listen; port 0 lets the system choose (see `Server.bound`).

    Attributes:
        authenticator: makes its peers known; None: they are anonymous.
    """

    name: str
    host: str
    port: int
    authenticator: Authenticator | None = None


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """Limits of the network layer. Names with dots in the comments are configuration keys.

    Attributes:
        request_bytes_max: largest frame, without its length prefix (`socket.request.max.bytes`).
        requests_bytes_max: memory of large frames of all connections (`queued.max.request.bytes`,
            `NO_BOUND` where that is not positive). DIFFERS: Kafka's default has no bound.
        decoded_bytes_max: about, of what requests above 32 KiB decode to, of all connections
            (`tidemark.decoded.request.bytes.max`). DIFFERS: Kafka has no such bound.
        connections_max: open connections of all listeners (`max.connections`).
        connections_per_ip_max: of one address (`max.connections.per.ip`).
            DIFFERS: Kafka's default has no limit; then one client takes all descriptors.
        connections_per_ip_overrides: address -> limit (`max.connections.per.ip.overrides`).
        idle_ms_max: without a request or an answer (`connections.max.idle.ms`, `NEVER_MS` where
            that is negative).
        frame_ms_max: from the first to the last byte of one request, or from one progress of a
            large one to the next (`tidemark.request.receive.timeout.ms`).
            DIFFERS: Kafka lets a trickle live as long as it is not idle.
        write_ms_max: without the peer taking a byte of what waits for it
            (`tidemark.connection.write.timeout.ms`). DIFFERS: as above.
        in_flight_max: requests of one connection without an answer; reading pauses there
            (`tidemark.connection.in.flight.max`).
        unsent_bytes_max: bytes waiting for one peer; reading pauses there
            (`tidemark.connection.unsent.bytes.max`).
        all_unsent_bytes_max: bytes waiting for all peers, in memory; above, the connections with
            the most are closed (`tidemark.connections.unsent.bytes.max`).
        send_buffer_bytes: -1 leaves it to the system (`socket.send.buffer.bytes`).
        receive_buffer_bytes: -1 leaves it to the system (`socket.receive.buffer.bytes`).
        descriptors_max: a connection whose descriptor has this number or a higher one is refused;
            0: what the process may open, less a reserve for files; `NO_BOUND`: the reserve, too.
            DIFFERS: Kafka takes connections until no file can be opened any more.
        backlog: `socket.listen.backlog.size`.
        unauthenticated_max: connections whose peer has not authenticated itself yet, where the
            listener wants it; the oldest is closed for the next one, so that nobody can hold them.
        unauthenticated_ms_max: how long they may take for it.
    """

    request_bytes_max: int = 104_857_600
    requests_bytes_max: int = 268_435_456
    decoded_bytes_max: int = 67_108_864
    connections_max: int = 2_147_483_647
    connections_per_ip_max: int = 2_000
    connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    idle_ms_max: int = 600_000
    frame_ms_max: int = 30_000
    write_ms_max: int = 60_000
    in_flight_max: int = 256
    unsent_bytes_max: int = 8 * 1024 * 1024
    all_unsent_bytes_max: int = 256 * 1024 * 1024
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    descriptors_max: int = 0
    backlog: int = 50
    unauthenticated_max: int = 128
    unauthenticated_ms_max: int = 10_000
