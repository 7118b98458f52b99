"""Faults and commands for tests of applications; the top layer of the broker."""

from typing import TYPE_CHECKING

from broker.config.broker_config import BrokerConfig

if TYPE_CHECKING:
    from broker.broker import Extend


def extension_of(config: BrokerConfig) -> "Extend | None":
    """The function that adds the control listener to a broker; None without such a setting."""
    if config.control_listener is None:
        return None
    from broker.testing.wiring import Control  # it loads OpenSSL, which other brokers do not need

    return Control().extend
