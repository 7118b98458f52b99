"""Seeds a broker of this process that has just started, beside its event loop."""

import asyncio
from collections.abc import Callable

from broker.config.key import ConfigError
from tidemark.seed.records import SeedError
from tidemark.seed.seeding import Seeder, SeedStopped

_running: set[asyncio.Task[None]] = set()


def seed_at_start(
    fatal: "asyncio.Future[None]",
    seeder: Seeder,
    done: Callable[[], None],
) -> None:
    """Begin to seed; called on the broker's loop.

    Args:
        fatal: fails where the seed does: the broker ends with its message.
        seeder: of this broker.
        done: called at the end, when all went well.
    """
    task = asyncio.get_running_loop().create_task(_seed(fatal, seeder, done))
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
