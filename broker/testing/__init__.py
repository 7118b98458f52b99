"""Faults and commands for tests of applications; the top layer of the broker."""

from typing import TYPE_CHECKING

from broker.config.broker_config import BrokerConfig

if TYPE_CHECKING:
    from broker.broker import Extend


def extension_of(config: BrokerConfig) -> "Extend | None":
    """What adds the control listener to a broker, None where the settings have none."""
    if config.control_listener is None:
        return None
    from broker.testing.wiring import Control  # loads OpenSSL: others need not

    return Control().extend
