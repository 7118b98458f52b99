"""The command `advance`: what it moves, what it runs, what it refuses."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.remote.tier import RemoteTier
from broker.testing.control import advance
from broker.testing.control.advance import Advance, run_retention
from broker.testing.control.commands import ControlError
from kafka_protocol.types import TopicPartition
from local_log.manager.log_dirs import LogManager
from rlm.config import TierConfig
from rlm.link.endpoint import LinkEndedError
from runtime.clock import Clock, ShiftedClock
from runtime.ports import Ports
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.worlds.local_log import NOW_MS, SMALL, TOPIC_ID, append, with_config
from tests.support.worlds.pools import HeldPool


def run(made: Advance, **arguments: Any) -> dict[str, Any]:
    return asyncio.run(made.command(arguments))


def test_the_clock_is_moved_before_the_passes_run_in_their_order() -> None:
    clock, seen = ShiftedClock(ManualClock(1_000, 7)), list[tuple[str, int]]()
    made = Advance(clock)

    async def note(name: str) -> None:
        seen.append((name, clock.wall_ms()))

    async def no_tier() -> None:
        raise LinkEndedError("no tier just now")

    made.passes |= {"one": lambda: note("one"), "two": no_tier, "three": lambda: note("three")}
    assert run(made, ms=500) == {"offset_ms": 500, "wall_ms": 1_500}
    assert seen == [("one", 1_500), ("three", 1_500)] * 2
    assert run(made, ms=0)["offset_ms"] == 500
    assert clock.monotonic_ms() == 7


@pytest.mark.parametrize("ms", [-1, advance.OFFSET_MS_MAX + 1, "5", None, 1.5, True])
def test_what_is_no_step_forward_is_refused(ms: Any) -> None:
    clock = ShiftedClock(ManualClock())
    with pytest.raises(ControlError, match="ms"):
        run(Advance(clock), ms=ms)
    assert clock.offset_ms == 0


def test_all_steps_together_have_a_limit() -> None:
    clock = ShiftedClock(ManualClock(), advance.OFFSET_MS_MAX)
    with pytest.raises(ControlError, match="in all by at most"):
        run(Advance(clock), ms=1)


def test_a_clock_that_cannot_be_moved_is_said() -> None:
    with pytest.raises(ControlError, match="cannot be moved"):
        run(Advance(ManualClock()), ms=1)


def test_a_pass_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advance, "PASSES_S_MAX", 0.01)
    made = Advance(ShiftedClock(ManualClock()))
    made.passes["a slow one"] = lambda: asyncio.get_running_loop().create_future()
    with pytest.raises(ControlError, match="a slow one is not over"):
        run(made, ms=1)


def expiring(root: Path, clock: Clock, pool: HeldPool, config: Any) -> LogManager:
    ports = simulated(clock=clock, pool=pool)  # type: ignore[arg-type]
    manager = LogManager([root], lambda _: config, ports)
    manager.load()
    log = manager.create("orders", 0, TOPIC_ID)
    for _ in range(60):
        append(log)
    log.update_high_watermark(log.log_end_offset)
    return manager


async def test_retention_is_over_when_everything_is_taken_out(tmp_path: Path) -> None:
    pool, clock = HeldPool(is_holding=False), ManualClock(NOW_MS)
    manager = expiring(tmp_path, clock, pool, with_config(SMALL, retention_ms=1_000))
    log = manager.get(TopicPartition("orders", 0))
    assert log is not None
    await asyncio.wait_for(run_retention(manager, clock), 10)
    assert len(log.segments.all) > 1, "nothing is due"
    clock.jump_wall(NOW_MS + 10_000)
    pool.is_holding = True
    running = asyncio.ensure_future(run_retention(manager, clock))
    while not running.done():
        await asyncio.sleep(0)
        assert (len(log.segments.all) == 1) or pool.held
        pool.release(1)
        await asyncio.sleep(0)
    assert (len(log.segments.all), log.log_start_offset) == (1, 60)


def test_only_what_is_copied_is_released(tmp_path: Path) -> None:
    clock, pool = ManualClock(NOW_MS), HeldPool(is_holding=False)
    config = with_config(SMALL, remote_storage_enable=True)
    manager = expiring(tmp_path, clock, pool, config)
    log = manager.get(TopicPartition("orders", 0))
    assert log is not None
    second = log.segments.all[2].base_offset
    assert log.set_copied_through(second - 1, 0)
    assert manager.retention.run([log], NOW_MS) == []
    manager.retention.run([log], NOW_MS, release_copied=True)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, second)
    assert log.set_copied_through(log.log_end_offset - 1, 0)
    log.set_config(with_config(config, remote_log_copy_disable=True))
    manager.retention.run([log], NOW_MS, release_copied=True)
    assert log.local_log_start_offset == second, "nothing more is copied, so nothing goes early"


async def test_every_tier_process_is_told_how_far_the_clock_is(tmp_path: Path) -> None:
    clock = ShiftedClock(ManualClock(), 5_000)
    ports: Ports = simulated(clock=clock)  # type: ignore[arg-type]
    config = TierConfig(
        node_id=1, cluster_id="c", state_dir=str(tmp_path), cache_dir=str(tmp_path),
        storage_class="x:Y",
    )  # fmt: skip
    tier = RemoteTier(config, ports, asyncio.get_running_loop())
    assert tier.config.wall_offset_ms == 5_000
    clock.offset_ms = 9_000
    tier.reconfigure(config)
    assert tier.config.wall_offset_ms == 9_000
    with pytest.raises(LinkEndedError):
        await tier.run_passes()
