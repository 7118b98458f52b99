"""The control listener and its commands, which are added to a broker for tests."""

import logging
from typing import Any

from broker.broker import ServingParts
from broker.config.broker_config import BrokerConfig
from broker.config.listeners import TIER_LISTENER
from broker.node.endpoints import advertised_endpoints
from broker.observe.health import Health
from broker.remote.tier import RemoteTier
from broker.testing.control.advance import add_advance, run_compaction
from broker.testing.control.commands import ControlCommands, ControlError
from broker.testing.control.listener import open_control
from broker.testing.control.tier_topic import TierTopic
from broker.testing.faults.service import FaultService
from runtime.clock import Clock, offset_of
from runtime.ports import Isolation

log = logging.getLogger(__name__)


def bootstrap_servers(config: BrokerConfig) -> str:
    """host:port of each listener for clients, comma separated."""
    return ",".join(
        f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}"
        for one in advertised_endpoints(config)
        if one.name != TIER_LISTENER
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


def listeners_of_clients(config: BrokerConfig) -> frozenset[str]:
    """Listeners that brokers do not use among themselves; none where they share one."""
    return frozenset(one.name for one in config.broker_listeners) - {
        config.inter_broker_listener_name
    }


def add_isolation(commands: ControlCommands, config: BrokerConfig, isolation: Isolation) -> None:
    """Add the commands `isolate` and `heal`."""
    of_clients = listeners_of_clients(config)

    async def isolate(arguments: dict[str, Any]) -> dict[str, Any]:
        """Cut this node off from the others, and where `clients` is true from clients as well.

        Raises:
            ControlError: The other nodes use the listener of the clients.
        """
        clients = arguments.get("clients", True)
        if clients is not True and not of_clients:
            raise ControlError(
                f"clients={clients!r}: brokers and clients share the listener "
                f"{config.inter_broker_listener_name}; give the brokers one of their own by "
                "inter.broker.listener.name, or cut off the clients, too"
            )
        isolation.cut(frozenset() if clients is True else of_clients)
        log.warning("this node is cut off: clients=%s", clients)
        return {}

    async def heal(_: dict[str, Any]) -> dict[str, Any]:
        """Connect this node again; does nothing if it is not cut off."""
        isolation.heal()
        return {}

    commands.add("isolate", isolate)
    commands.add("heal", heal)


class Control:
    """The control listener of one broker.

    Attributes:
        address: Host:port of the listener once it is open.
    """

    def __init__(self) -> None:
        self.address = ""

    async def extend(self, broker: ServingParts) -> None:
        """Add the commands and open the listener.

        Raises:
            ConfigError: The address cannot be bound.
        """
        commands, parts = ControlCommands(), broker.handlers
        logs, tier, ports = parts.logs, parts.tier, parts.ports
        clock = ports.clock
        add_status(commands, parts.config, broker.health, tier, clock)
        add_isolation(commands, parts.config, ports.isolation)
        broker.on_stop(ports.isolation.heal)  # else the broker's stop waits for other nodes in vain
        commands.add("tier", TierTopic(parts.replicas, logs, tier, clock).command)
        made = add_advance(commands, clock, logs, tier)

        async def expire_producers() -> None:
            logs.expire_producers(clock.wall_ms(), parts.config.producer_id_expiration_ms)

        made.passes["producer expiry"] = expire_producers
        made.passes["expiry of offsets"] = parts.groups.expire
        made.passes["compaction"] = lambda: run_compaction(broker.cleaner)
        FaultService(
            broker.server.dispatcher,
            broker.server.served,
            parts.replicas.topic_names.get,
            tier,
            ports,
            parts.config.inter_broker_listener_name if listeners_of_clients(parts.config) else "",
        ).register(commands)
        self.address = await open_control(parts.config, commands, broker.on_stop)
