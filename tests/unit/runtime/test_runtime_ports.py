"""What a process stands on, real and simulated."""

import asyncio
import threading
from dataclasses import replace

from runtime.ports import Ports, system_ports
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import simulated


def half_a_minute_later(ports: Ports) -> list[int]:
    """Stand for a part that knows nothing of who is behind its ports."""
    seen: list[int] = []
    began_ms = ports.clock.monotonic_ms()
    ports.scheduler.call_later(30_000, lambda: seen.append(ports.clock.monotonic_ms() - began_ms))
    return seen


def test_one_value_of_simulated_ports_shares_one_time():
    ports = simulated()
    seen = half_a_minute_later(ports)
    ports.scheduler.advance(29_999)
    assert seen == []
    ports.scheduler.advance(1)
    assert seen == [30_000]


def test_the_same_seed_gives_the_same_ids():
    assert simulated(3).rng.uuid() == simulated(3).rng.uuid()
    assert simulated(3).rng.uuid() != simulated(4).rng.uuid()


def test_one_port_can_be_swapped_and_the_others_stay():
    ports = simulated()
    disk = FaultyDisk()
    swapped = replace(ports, disk=disk)
    assert swapped.disk is disk
    assert swapped.clock is ports.clock
    assert swapped.metrics is ports.metrics


def test_simulated_pools_run_in_the_callers_thread():
    executors = simulated().executors
    here = threading.get_ident()
    assert executors.commit.submit(threading.get_ident).result() == here
    assert executors.pool("audit", 8).submit(threading.get_ident).result() == here
    executors.shutdown()


async def test_a_named_pool_is_created_once_and_ends_with_the_others() -> None:
    ports = system_ports(asyncio.get_running_loop())
    commit = ports.executors.commit
    assert ports.executors.commit is commit
    assert ports.executors.pool("audit", 1) is not commit
    names = {
        await pool.run(lambda: threading.current_thread().name)
        for pool in (commit, ports.executors.pool("audit", 1))
    }
    assert names == {"log-commit_0", "audit_0"}
    ports.executors.shutdown()
    left = [thread.name for thread in threading.enumerate()]
    assert not names & set(left)


async def test_a_pool_says_how_many_calls_no_thread_has_begun() -> None:
    executors = system_ports(asyncio.get_running_loop()).executors
    began, may_end = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_end.wait(10)

    calls = [executors.changes.submit(work) for _ in range(3)]
    began.wait(10)
    assert executors.waiting() == {"log-changes": 2}
    may_end.set()
    for call in calls:
        call.result()
    assert executors.waiting() == {"log-changes": 0}
    executors.shutdown()
