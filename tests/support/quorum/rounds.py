"""Rounds of killing, pausing and cutting off the active controller under continuous changes.

    python -m tests.support.quorum.rounds --rounds 50 --seed 1 [--dynamic] [--kafkas 1]

Prints a line a round and the seed; exit code 1 with the first thing that cannot be.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.support.quorum.changes import Changes
from tests.support.quorum.committed import differences, read_copy
from tests.support.quorum.kafka_controllers import MixedQuorum
from tests.support.quorum.kept_brokers import registered
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Leader, Plan, Quorum, until

DEEDS = ("kill", "pause", "cut", "cut off its answers", "cut off its ears", "pause a follower")
"""What is done; but for the last to the leader. Cut in one direction only, it still hears, or still
speaks."""
FOLLOWER_S = 4.0
"""How long a follower sleeps: longer than a leader's patience (1.5 fetch timeouts)."""
BETWEEN = 10
"""Changes that are acknowledged before the next round."""
PROGRESS_S = 60.0


@dataclass
class Report:
    """What came of it.

    Attributes:
        without_ms: how long nobody led, by what was done to the leader, as the harness sees it.
        led: which node led at the beginning of each round.
        wrong: what cannot be; a sentence each.
    """

    without_ms: list[tuple[str, int]] = field(default_factory=list)
    led: list[int] = field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    wrong: list[str] = field(default_factory=list)


async def run_rounds(
    quorum: Quorum,
    *,
    seed: int,
    rounds: int,
    in_turn: str = "",
    say: Callable[[str], None] = lambda _text: None,
) -> Report:
    """Go through rounds, and validate what is on the disks in the end.

    Args:
        quorum: of three, where they take turns.
        seed: of changes and deeds.
        rounds: how many.
        in_turn: "kill" or "stop": the only deed, and the next node by its number leads after it;
            otherwise the rng sayss what is done.
        say: gets a line a round.
    """
    rng, report = Random(seed), Report()
    changes = Changes(quorum, seed)
    _, tasks = await registered(quorum, seed)
    tasks.append(asyncio.create_task(changes.run()))
    try:
        for number in range(rounds):
            done = changes.history.acknowledged + BETWEEN
            await until(
                lambda done=done: changes.history.acknowledged >= done or _broken(tasks),  # type: ignore[misc]
                f"{BETWEEN} changes are acknowledged in round {number}",
                deadline_s=PROGRESS_S,
            )
            _raise_broken(tasks)
            leader = await quorum.leader()
            report.led.append(leader.node_id)
            deed = in_turn or rng.choice(DEEDS)
            if in_turn:
                said = await _handed_on(quorum, leader, deed, changes)
            elif deed == "pause a follower":
                said = await _follower_sleeps(quorum, leader, changes, rng)
            else:
                began = time.monotonic()
                again, epoch = await _without(quorum, leader, deed)
                changes.epoch = max(changes.epoch, epoch)
                took_ms = int((again - began) * 1000)
                report.without_ms.append((deed, took_ms))
                said = f"another led after {took_ms} ms"
            say(
                f"round {number}: {deed}, leader {leader.node_id} of epoch {leader.epoch}: {said}, "
                f"{changes.history.acknowledged} acknowledged"
            )
        await changes.rest()
        await _validate(quorum, changes, report)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return report


async def _without(quorum: Quorum, leader: Leader, deed: str) -> tuple[float, int]:
    """Take the leader away until another leads, and give it back; when that led, and its epoch."""
    controller, gone = quorum.controllers[leader.node_id], [leader.node_id]
    if deed == "kill":
        controller.kill()
        other = await quorum.leader(above=leader.epoch, without=gone)
        led = time.monotonic()
        await controller.start()
    elif deed == "pause":
        controller.pause()
        other = await quorum.leader(above=leader.epoch, without=gone)
        led = time.monotonic()
        controller.resume()
    else:
        assert quorum.links is not None
        there, back = quorum.links.around(leader.node_id)
        if deed != "cut off its ears":
            quorum.links.cut(there)
        if deed != "cut off its answers":
            quorum.links.cut(back)
        other = await quorum.leader(above=leader.epoch, without=gone)
        led = time.monotonic()
        quorum.links.heal()
    return led, other.epoch


async def _handed_on(quorum: Quorum, leader: Leader, deed: str, changes: Changes) -> str:
    """End the leader: the next one leads, since the third sleeps before and lacks changes."""
    ids = sorted(quorum.controllers)
    place = ids.index(leader.node_id)
    heir, third = ids[(place + 1) % 3], quorum.controllers[ids[(place + 2) % 3]]
    controller = quorum.controllers[leader.node_id]
    await quorum.settled()
    third.pause()
    done = changes.history.acknowledged + BETWEEN
    await until(
        lambda: changes.history.acknowledged >= done,
        f"{BETWEEN} changes are acknowledged without controller {third.node_id}",
        deadline_s=PROGRESS_S,
    )
    if deed == "kill":
        controller.kill()
    stopped = asyncio.create_task(controller.stop())
    await quorum.leaderless(without=[heir])  # which the leader itself may have elected
    third.resume()
    after = await quorum.leader(above=leader.epoch, without=[leader.node_id])
    assert after.node_id == heir, f"controller {after.node_id} leads without all changes"
    code = await stopped
    assert deed == "kill" or code == controller.terminated, controller.log_tail()
    changes.epoch = max(changes.epoch, after.epoch)
    await controller.start()
    await quorum.settled()
    return f"controller {heir} led in epoch {after.epoch}"


async def _follower_sleeps(quorum: Quorum, leader: Leader, changes: Changes, rng: Random) -> str:
    """Longer than the leader waits for anybody: changes continue, and it catches up."""
    node_id = rng.choice([one for one in quorum.controllers if one != leader.node_id])
    sleeper, began = quorum.controllers[node_id], time.monotonic()
    done = changes.history.acknowledged + BETWEEN
    sleeper.pause()
    await until(
        lambda: time.monotonic() - began > FOLLOWER_S and changes.history.acknowledged >= done,
        f"{BETWEEN} changes are acknowledged without controller {node_id}",
        deadline_s=PROGRESS_S,
    )
    sleeper.resume()
    after = await quorum.settled()
    return f"controller {node_id} slept, epoch {after.epoch} after it"


async def _validate(quorum: Quorum, changes: Changes, report: Report) -> None:
    history = changes.history
    report.acknowledged = history.acknowledged
    report.unknown = len([one for one in history.subjects.values() if not one.is_settled])
    # Another that was deposed may say that it leads, and know less than was acknowledged since.
    end = (await quorum.leader(above=changes.epoch - 1)).high_watermark
    await quorum.settled()  # up to an end that is not before that one
    copies = [read_copy(one, end) for one in quorum.controllers.values()]
    report.wrong += differences(copies)
    for copy in copies:
        report.wrong += history.contradictions(copy.topics, f"controller {copy.node_id}")


def _broken(tasks: list["asyncio.Task[None]"]) -> bool:
    return any(task.done() for task in tasks)


def _raise_broken(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        if task.done():
            task.result()
            raise AssertionError("a client has ended")


async def _main(options: argparse.Namespace, directory: Path) -> int:
    plan = Plan(TidemarkController, options.dynamic)
    async with MixedQuorum(directory, plan, kafkas=options.kafkas) as quorum:
        report = await run_rounds(quorum, seed=options.seed, rounds=options.rounds, say=print)
    times = sorted(ms for _, ms in report.without_ms) or [0]
    print(
        f"seed {options.seed}: {options.rounds} rounds, {report.acknowledged} acknowledged, "
        f"{report.unknown} topics unknown; without a leader: median {times[len(times) // 2]} ms, "
        f"p95 {times[int(len(times) * 0.95)]} ms, longest {times[-1]} ms"
    )
    for text in report.wrong[:20]:
        print(text)
    return 1 if report.wrong else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dynamic", action="store_true", help="voters in the log")
    parser.add_argument("--kafkas", type=int, default=0, help="how many of the three are Kafka's")
    parser.add_argument("--keep", type=Path, help="directory for everything, kept")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        sys.exit(asyncio.run(_main(options, options.keep)))
    with tempfile.TemporaryDirectory() as directory:
        sys.exit(asyncio.run(_main(options, Path(directory))))


if __name__ == "__main__":
    main()
