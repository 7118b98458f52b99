"""The properties of Kafka's admin client that have an effect on our questions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from broker.config.key import ConfigError
from kafka_client.blocking import BlockingClient

_API_TIMEOUT: Final = "default.api.timeout.ms"
_REQUEST_TIMEOUT: Final = "request.timeout.ms"
_KNOWN: Final = frozenset(
    (
        _API_TIMEOUT,
        _REQUEST_TIMEOUT,
        "client.id",
        "bootstrap.servers",
        "bootstrap.controllers",
    )
)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How questions are asked.

    Attributes:
        api_timeout_ms: after this time there is no further attempt. DIFFERS: Kafka's default is a
            minute; whoever looks at a quorum without a leader wants to know that sooner.
        request_timeout_ms: how long one request may take.
        without_effect: names that were given and change nothing here.
        security: `tls` and `authenticate` of `ConnectionSettings`.
    """

    client_id: str = "tidemark-metadata-quorum"
    api_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    without_effect: tuple[str, ...] = ()
    security: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def client(self, bootstrap: str) -> BlockingClient:
        """A client that asks these addresses; nothing is opened yet."""
        return BlockingClient(bootstrap, self.client_id, **self.security)


def client_settings(path: Path | None) -> ClientSettings:
    """Read the file of `--command-config`; None: there is none.

    Raises:
        ConfigError: the file cannot be read, or a number in it.
        ClientSettingError: it wants what this client cannot do.
    """
    if path is None:
        return ClientSettings()
    from broker.config.broker_config import read_properties  # loads every key of a broker
    from kafka_client.security import FAMILIES, WITHOUT_EFFECT, security_of  # loads OpenSSL

    given = read_properties(path)
    default = ClientSettings()
    return ClientSettings(
        given.get("client.id", default.client_id),
        _milliseconds(given, _API_TIMEOUT, default.api_timeout_ms),
        _milliseconds(given, _REQUEST_TIMEOUT, default.request_timeout_ms),
        tuple(
            name
            for name in given
            if name in WITHOUT_EFFECT or not (name in _KNOWN or name.startswith(FAMILIES))
        ),
        security_of(given),
    )


def _milliseconds(given: dict[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default)).strip()
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(name, text, "must be a number of milliseconds, 1 or more")
    return int(text)
