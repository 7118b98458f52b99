"""The control listener and its commands: what is added to a broker for tests."""

from broker.broker import ServingParts
from broker.testing.control.advance import add_advance, run_compaction
from broker.testing.control.commands import ControlCommands
from broker.testing.control.listener import open_control
from broker.testing.control.status import add_status
from broker.testing.control.tier_topic import TierTopic
from broker.testing.faults.service import FaultService


class Control:
    """The control listener of one broker.

    Attributes:
        address: host:port of the listener once it is open.
    """

    def __init__(self) -> None:
        self.address = ""

    async def extend(self, broker: ServingParts) -> None:
        """Add the commands and open the listener.

        Raises:
            ConfigError: the address cannot be bound.
        """
        commands, parts = ControlCommands(), broker.handlers
        logs, tier, ports = parts.logs, parts.tier, parts.ports
        clock = ports.clock
        add_status(commands, parts.config, broker.health, tier, clock)
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
        ).register(commands)
        self.address = await open_control(parts.config, commands, broker.on_stop)
