"""The listener of the tier's Kafka clients: on the loopback of this machine, for them alone.

It is in no setting, and Metadata names it on itself only. A peer has to authenticate itself by
SASL/PLAIN with a token that is made at each start of the broker and that the tier gets over its
link: so no client id gives a right, and nothing that is logged can. It is a server of its own, so
that clients who use up their connections, descriptors or memory of requests do not hold up the
tier. Connections that strangers of this machine keep open do not lock it out
(`unauthenticated_max`); a flood of new ones delays its next authentication while it lasts.

DIFFERS: Kafka's metadata manager uses a listener for brokers, the one of
`remote.log.metadata.manager.listener.name`, on which ACLs say who may write.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from broker.network.authentication import PlainAuthenticator
from broker.network.limits import NO_BOUND, ListenerAddress, NetworkLimits
from broker.network.registry import HandlerTable
from broker.network.server import Server
from broker.network.shared import OnFailure
from broker.remote.config import TIER_PRINCIPAL
from broker.topics.cluster import ClusterView
from metadata_topic.image.model import Endpoint
from runtime.ports import Ports

log = logging.getLogger(__name__)

NAME: Final = "tier"
"""In lower case, as no setting can name a listener."""
USER: Final = "tier"
LOOPBACK: Final = ("127.0.0.1", "::1")
_SASL_PLAINTEXT: Final = 2
_CONNECTIONS_MAX: Final = 2_147_483_647
_BACKLOG: Final = 1_024
_MEMORY_BYTES: Final = 16 * 1024 * 1024
"""For large requests as bytes, and as much as objects: records of metadata are small."""


class TierListener:
    """Opens it, and closes it."""

    def __init__(
        self,
        handlers: HandlerTable,
        limits: NetworkLimits,
        ports: Ports,
        cluster: ClusterView,
        on_failure: OnFailure,
    ) -> None:
        """Nothing is opened before `open`.

        Args:
            handlers: with those of SaslHandshake and SaslAuthenticate.
            limits: of clients; those by count do not hold for the tier, and its memory is its own.
            ports: of the process.
            cluster: what the handlers answer from: learns where this broker listens.
            on_failure: told of files that cannot be read.
        """
        self._token = ports.dice.uuid().hex()
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
        self._server.read_failures.on_failure = on_failure

    async def open(self, hosts: Sequence[str] = LOOPBACK) -> dict[str, str]:
        """Listen on the first of `hosts` that this machine has, at a port that is free.

        Returns:
            What the tier's Kafka clients need, by librdkafka's names. The token is among it: to be
            handed to the tier process, and shown nowhere.

        Raises:
            OSError: none of them can be bound.
        """
        for host in hosts:
            try:
                await self._server.start([self._address(host)])
                break
            except OSError:
                if host == hosts[-1]:
                    raise
        _, port = self._server.bound[NAME]
        self._cluster.own_endpoints[NAME] = Endpoint(NAME, host, port, _SASL_PLAINTEXT)
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        log.info("listening: listener=%s address=%s (the remote tier)", NAME, shown)
        return {
            "bootstrap.servers": shown,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": PlainAuthenticator.mechanism,
            "sasl.username": USER,
            "sasl.password": self._token,
        }

    def _address(self, host: str) -> ListenerAddress:
        authenticator = PlainAuthenticator(USER, self._token, TIER_PRINCIPAL)
        return ListenerAddress(NAME, host, 0, authenticator)

    async def close(self) -> None:
        """Close; the tier has ended before."""
        await self._server.stop(0)
