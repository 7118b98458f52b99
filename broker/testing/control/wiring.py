"""Which commands a broker has, and of what they are made."""

from broker.handlers.parts import HandlerParts
from broker.observe.health import Health
from broker.testing.control.advance import Advance, add_advance, run_compaction
from broker.testing.control.commands import ControlCommands
from broker.testing.control.status import add_status
from broker.testing.control.tier_topic import TierTopic
from local_log.cleaner.cleaner import LogCleaner


def add_commands(
    commands: ControlCommands, parts: HandlerParts, health: Health, cleaner: LogCleaner
) -> Advance:
    """Add them all; to what comes back other parts add what they do by the wall clock."""
    clock = parts.ports.clock
    add_status(commands, parts.config, health, parts.tier, clock)
    commands.add("tier", TierTopic(parts.replicas, parts.logs, parts.tier, clock).command)
    made = add_advance(commands, clock, parts.logs, parts.tier)

    async def expire_producers() -> None:
        parts.logs.expire_producers(clock.wall_ms(), parts.config.producer_id_expiration_ms)

    made.passes["producer expiry"] = expire_producers
    made.passes["expiry of offsets"] = parts.groups.expire
    made.passes["compaction"] = lambda: run_compaction(cleaner)
    return made
