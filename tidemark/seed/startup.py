"""Seeds a broker of this process that has just started, beside its event loop."""

import asyncio
from collections.abc import Callable

from broker.config.key import ConfigError
from tidemark.seed.errors import SeedError
from tidemark.seed.plan import SeedPlan
from tidemark.seed.seeding import Say, Seeder, SeedStopped

_running: set[asyncio.Task[None]] = set()


def seed_at_start(
    fatal: "asyncio.Future[None]",
    plan: SeedPlan,
    bootstrap_servers: str,
    say: Say,
    done: Callable[[], None],
) -> None:
    """Begin to seed; called on the broker's loop.

    Args:
        fatal: fails where the seed does: the broker ends with its message.
        plan: what to do.
        bootstrap_servers: host:port of the broker.
        say: is told what was done to each topic.
        done: called at the end, when all went well.
    """
    task = asyncio.get_running_loop().create_task(
        _seed(fatal, Seeder(plan, bootstrap_servers, say), done)
    )
    _running.add(task)  # the loop alone would not keep it
    task.add_done_callback(_running.discard)


async def _seed(fatal: "asyncio.Future[None]", seeder: Seeder, done: Callable[[], None]) -> None:
    try:
        await asyncio.to_thread(seeder.run)
    except asyncio.CancelledError:
        seeder.stop()  # the broker ends: its thread is waited for
        raise
    except SeedStopped:
        return
    except SeedError as error:
        if not fatal.done():
            fatal.set_exception(ConfigError("--seed", None, str(error)))
        return
    done()
