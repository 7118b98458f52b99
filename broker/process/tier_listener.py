"""The listener of the tiers' Kafka clients, for them alone.

A lone broker has it on the loopback of this machine. It is in no setting, and only Metadata
requests on it name it. In a cluster, with its secret, it has an address of its own
(`tidemark.tier.listener`), which is in the registration: Metadata on it names those of the other
brokers. `TierIdentity` authenticates peers; no client id gives a right, and nothing that is logged
can.

It is a separate server. So clients that use up their connections, descriptors or memory of requests
do not hold up the tier. Connections that strangers keep open do not lock it out
(`unauthenticated_max`); a flood of new ones delays its next authentication while it lasts.

A lone broker makes a token at each start and gives it to its tier over the link: SASL/PLAIN, on
loopback alone. With the secret of the cluster each broker authenticates every tier by
SCRAM-SHA-256. It sends nothing by which another peer could pass for a tier, so it is safe beyond
loopback. Nothing is stored for it: salt and keys follow from the secret and the cluster's id, the
same at each broker. The secret has so much entropy that the number of iterations does not matter.

DIFFERS: Kafka's metadata manager uses a listener for brokers, the one of
`remote.log.metadata.manager.listener.name`, on which ACLs decide about writes.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from broker.config.listeners import TIER_LISTENER, Listener
from broker.network.authentication import Authenticator, PlainAuthenticator
from broker.network.limits import NO_BOUND, ListenerAddress, NetworkLimits
from broker.network.registry import HandlerTable
from broker.network.server import Server
from broker.network.shared import OnFailure
from broker.remote.config import TIER_PRINCIPAL
from broker.topics.cluster import ClusterView
from metadata_topic.image.model import Endpoint
from runtime.ports import Ports
from runtime.rng import Rng

log = logging.getLogger(__name__)

USER: Final = "tier"
LOOPBACK: Final = ("127.0.0.1", "::1")
_SASL_PLAINTEXT: Final = 2
_CONNECTIONS_MAX: Final = 2_147_483_647
_BACKLOG: Final = 1_024
_MEMORY_BYTES: Final = 16 * 1024 * 1024
"""For large requests as bytes, and the same again as objects: records of metadata are small."""


@dataclass(frozen=True, slots=True)
class TierIdentity:
    """The authentication of a tier's Kafka clients, for both sides.

    Attributes:
        authenticator: Of the listener.
        password: Of `USER`; shown nowhere.
    """

    authenticator: Authenticator
    password: str = field(repr=False)


def identity_of_lone_broker(rng: Rng) -> TierIdentity:
    """Make the token of one start."""
    token = rng.uuid().hex()
    return TierIdentity(PlainAuthenticator(USER, token, TIER_PRINCIPAL), token)


def identity_in_cluster(secret: str, cluster_id: str, rng: Rng) -> TierIdentity:
    """Derive it; takes some milliseconds of a CPU."""
    # These load OpenSSL, which a lone broker does not need.
    from hashlib import sha256

    from broker.network.scram import ITERATIONS_MIN, ScramAuthenticator, ScramCredential

    salt = sha256(f"tidemark tier {cluster_id}".encode()).digest()
    credential = ScramCredential.of(secret.encode(), salt, ITERATIONS_MIN)
    authenticator = ScramAuthenticator(USER, credential, TIER_PRINCIPAL, lambda: rng.uuid().hex())
    return TierIdentity(authenticator, secret)


class TierListener:
    """Opens and closes the listener of the tiers."""

    def __init__(
        self,
        handlers: HandlerTable,
        limits: NetworkLimits,
        ports: Ports,
        cluster: ClusterView,
        identity: TierIdentity,
        on_failure: OnFailure,
    ) -> None:
        """Open nothing before `open`.

        Args:
            handlers: With those of SaslHandshake and SaslAuthenticate.
            limits: Of clients; those by count do not hold for the tier, and its memory is its own.
            ports: Of the process.
            cluster: The handlers' view; gets the address of a lone broker's listener.
            identity: Authenticates the peers.
            on_failure: Called with files that cannot be read.
        """
        limits = replace(
            limits,
            connections_max=_CONNECTIONS_MAX,
            connections_per_ip_max=_CONNECTIONS_MAX,
            connections_per_ip_overrides={},
            descriptors_max=NO_BOUND,
            backlog=_BACKLOG,
            requests_bytes_max=_MEMORY_BYTES,
            decoded_bytes_max=_MEMORY_BYTES,
        )
        self._server, self._cluster = Server(handlers, limits, ports), cluster
        self._identity = identity
        self._server.read_failures.on_failure = on_failure

    async def open(self, hosts: Sequence[str] = LOOPBACK) -> dict[str, str]:
        """Listen on the first of `hosts` that this machine has, at a port that is free.

        Returns:
            Settings of the tier's Kafka clients, by librdkafka's names. They include the password:
            pass them to the tier process, and show them nowhere.

        Raises:
            OSError: None of them can be bound.
        """
        for host in hosts:
            try:
                await self._start(host, 0)
                break
            except OSError:
                if host == hosts[-1]:
                    raise
        _, port = self._server.bound[TIER_LISTENER]
        endpoint = Endpoint(TIER_LISTENER, host, port, _SASL_PLAINTEXT)
        self._cluster.own_endpoints[TIER_LISTENER] = endpoint
        return self._client_settings(host, port)

    async def open_in_cluster(self, listener: Listener, advertised: Listener) -> dict[str, str]:
        """Listen on `listener`; returns what `open` does, with the address of `advertised`.

        The tier of this broker uses the advertised address too, as Metadata name it.

        Raises:
            OSError: It cannot be bound.
        """
        await self._start(listener.host, listener.port)
        return self._client_settings(advertised.host, advertised.port)

    async def _start(self, host: str, port: int) -> None:
        authenticator = self._identity.authenticator
        await self._server.start([ListenerAddress(TIER_LISTENER, host, port, authenticator)])

    def _client_settings(self, host: str, port: int) -> dict[str, str]:
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        log.info("listening: listener=%s address=%s (the remote tier)", TIER_LISTENER, shown)
        return {
            "bootstrap.servers": shown,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": self._identity.authenticator.mechanism,
            "sasl.username": USER,
            "sasl.password": self._identity.password,
        }

    async def close(self) -> None:
        """Close; the tier has ended before."""
        await self._server.stop(0)
