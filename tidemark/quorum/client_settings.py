"""The properties of Kafka's admin client that have an effect on our questions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.config.key import ConfigError
from tidemark.quorum.description import QuorumError

_API_TIMEOUT: Final = "default.api.timeout.ms"
_REQUEST_TIMEOUT: Final = "request.timeout.ms"
_KNOWN: Final = frozenset(
    (
        _API_TIMEOUT,
        _REQUEST_TIMEOUT,
        "client.id",
        "security.protocol",
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
    """

    client_id: str = "tidemark-metadata-quorum"
    api_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    without_effect: tuple[str, ...] = ()


def client_settings(path: Path | None) -> ClientSettings:
    """Read the file of `--command-config`; None: there is none.

    Raises:
        ConfigError: the file cannot be read, or a number in it.
        QuorumError: it wants what we do not speak.
    """
    if path is None:
        return ClientSettings()
    from broker.config.broker_config import read_properties  # loads every key of a broker

    given = read_properties(path)
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise QuorumError(f"security.protocol={protocol}: only PLAINTEXT is known here")
    default = ClientSettings()
    return ClientSettings(
        given.get("client.id", default.client_id),
        _milliseconds(given, _API_TIMEOUT, default.api_timeout_ms),
        _milliseconds(given, _REQUEST_TIMEOUT, default.request_timeout_ms),
        tuple(name for name in given if name not in _KNOWN),
    )


def _milliseconds(given: dict[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default)).strip()
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(name, text, "must be a number of milliseconds, 1 or more")
    return int(text)
