"""Limits of one connection, of one address and of the whole server."""

from dataclasses import dataclass, field
from typing import Final

from broker.network.authentication import Authenticator

NEVER_MS: Final = 2**63 - 1
NO_BOUND: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """An address to listen on; port 0 lets the system choose (see `Server.bound`).

    Attributes:
        authenticator: Authenticates the peers; None: they are anonymous.
    """

    name: str
    host: str
    port: int
    authenticator: Authenticator | None = None


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """Limits of the network layer. Names with dots in the comments are configuration keys.

    Attributes:
        request_bytes_max: Largest frame, without its length prefix (`socket.request.max.bytes`).
        requests_bytes_max: Memory of large frames of all connections (`queued.max.request.bytes`,
            `NO_BOUND` where that is not positive). DIFFERS: Kafka's default has no bound.
        decoded_bytes_max: Approximate memory of all decoded requests above 32 KiB
            (`tidemark.decoded.request.bytes.max`). DIFFERS: Kafka has no such bound.
        connections_max: Open connections of all listeners (`max.connections`).
        connections_per_ip_max: Open connections of one address (`max.connections.per.ip`). DIFFERS:
            Kafka's default has no limit, so that one client can use up all descriptors.
        connections_per_ip_overrides: Address -> limit (`max.connections.per.ip.overrides`).
        idle_ms_max: Time without a request or an answer (`connections.max.idle.ms`, `NEVER_MS`
            where that is negative).
        frame_ms_max: Time from the first to the last byte of one request, or between two progresses
            of a large one (`tidemark.request.receive.timeout.ms`). DIFFERS: Kafka keeps a slow
            sender connected as long as it is not idle.
        write_ms_max: Time in which the peer takes no byte of the data waiting for it
            (`tidemark.connection.write.timeout.ms`). DIFFERS: Kafka has no such limit.
        in_flight_max: Unanswered requests of one connection at which reading pauses
            (`tidemark.connection.in.flight.max`).
        unsent_bytes_max: Bytes waiting for one peer at which reading pauses
            (`tidemark.connection.unsent.bytes.max`).
        all_unsent_bytes_max: Bytes in memory that wait for all peers
            (`tidemark.connections.unsent.bytes.max`). Above it, the connections with the most bytes
            are closed.
        send_buffer_bytes: -1 leaves it to the system (`socket.send.buffer.bytes`).
        receive_buffer_bytes: -1 leaves it to the system (`socket.receive.buffer.bytes`).
        descriptors_max: A connection whose descriptor has this number or a higher one is refused.
            0: the limit of the process, less a reserve for files; `NO_BOUND`: no reserve. DIFFERS:
            Kafka accepts connections until no file can be opened.
        backlog: `socket.listen.backlog.size`.
        unauthenticated_max: Connections whose peer has not authenticated yet, on listeners that
            require it. The oldest is closed for the next one, so that a client cannot occupy them
            all.
        unauthenticated_ms_max: Time in which a peer must authenticate.
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
