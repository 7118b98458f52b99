"""The command `advance`: days pass for the broker and its tier, and all that is then due is done.

Only the wall clock moves: retention, rolling, expiry, timestamp checks. Sessions and deadlines use
the monotonic clock. Other parts that use the wall clock add their passes here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from broker.remote.tier import RemoteTier
from broker.testing.control.commands import ControlCommands, ControlError, number_of
from local_log.cleaner.cleaner import LogCleaner
from local_log.manager.log_dirs import LogManager
from rlm.link.endpoint import LinkEndedError
from runtime.clock import Clock, ShiftedClock

log = logging.getLogger(__name__)

OFFSET_MS_MAX: Final = 100 * 365 * 24 * 3600 * 1000
PASSES_S_MAX: Final = 60.0
_POLL_S: Final = 0.005
ROUNDS: Final = 2
"""The first round rolls and copies; the second expires the copied segments."""

RunPass = Callable[[], Awaitable[object]]


class Advance:
    """Moves the broker's wall clock forward.

    Attributes:
        passes: Work by the wall clock, by name, in the order in which it runs.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.passes: dict[str, RunPass] = {}

    async def command(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Move the clock by `ms` and answer when all passes are done.

        Raises:
            ControlError: Not a number of ms forward, or a pass takes too long.
        """
        ms, clock = number_of(arguments, "ms"), self._clock
        if not isinstance(clock, ShiftedClock):
            raise ControlError("the clock of this broker cannot be moved")
        if not 0 <= ms <= OFFSET_MS_MAX - clock.offset_ms:
            raise ControlError(
                f"ms={ms}: time goes forward only, and in all by at most {OFFSET_MS_MAX} ms"
            )
        clock.offset_ms += ms
        log.warning("the wall clock is moved: ms=%d offset_ms=%d", ms, clock.offset_ms)
        for _ in range(ROUNDS):
            for name, run in self.passes.items():
                await self._run(name, run)
        return {"offset_ms": clock.offset_ms, "wall_ms": clock.wall_ms()}

    async def _run(self, name: str, run: RunPass) -> None:
        try:
            async with asyncio.timeout(PASSES_S_MAX):
                await run()
        except TimeoutError:
            raise ControlError(
                f"the clock is moved, but {name} is not over after {PASSES_S_MAX:.0f} s; "
                "the broker's log says why",
                409,
            ) from None
        except LinkEndedError as error:
            log.info("the tier does not take part: %s", error)


async def run_retention(logs: LogManager, clock: Clock) -> None:
    """Roll and remove segments that are due; done when they are out of the log."""
    over = asyncio.Event()
    logs.retention.run(logs.all(), clock.wall_ms(), ended=over.set)
    await over.wait()


async def run_compaction(cleaner: LogCleaner) -> None:
    """Clean logs that are due, after a pass that began before the clock was moved."""
    for _ in range(2):
        cleaner.look()
        while cleaner.is_working:  # noqa: ASYNC110 - for minutes at times, without a callback
            await asyncio.sleep(_POLL_S)


def add_advance(
    commands: ControlCommands, clock: Clock, logs: LogManager, tier: RemoteTier | None
) -> Advance:
    """Add the command `advance`, with the passes of logs and tier."""
    made = Advance(clock)
    made.passes["retention"] = lambda: run_retention(logs, clock)
    if tier is not None:
        made.passes["tier"] = tier.run_passes
    commands.add("advance", made.command)
    return made
