"""The command `status`: where clients reach the broker, and how it is."""

from typing import Any

from broker.config.broker_config import BrokerConfig
from broker.node.endpoints import advertised_endpoints
from broker.observe.health import Health
from broker.remote.tier import RemoteTier
from broker.testing.control.commands import ControlCommands
from runtime.clock import Clock, offset_of


def bootstrap_servers(config: BrokerConfig) -> str:
    """host:port of every listener of clients, comma separated."""
    return ",".join(
        f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}"
        for one in advertised_endpoints(config)
    )


def add_status(
    commands: ControlCommands,
    config: BrokerConfig,
    health: Health,
    tier: RemoteTier | None,
    clock: Clock,
) -> None:
    """Add the command `status`."""

    async def status(_: dict[str, Any]) -> dict[str, Any]:
        """Stage and health, addresses, the wall clock, and the tier's process."""
        state = None if tier is None else tier.state()
        return {
            "bootstrap_servers": bootstrap_servers(config),
            "wall_ms": clock.wall_ms(),
            "offset_ms": offset_of(clock),
            "tier": None if state is None else {"state": state.process, "pid": state.pid},
            **health.report(),
        }

    commands.add("status", status)
