"""The first start on directories of earlier days may be killed at any step: nothing is lost.

TIDEMARK_ALL_STEPS=1 kills before every operation that changes the disk, instead of a sample, which
is drawn by a seed: TIDEMARK_STEPS_SEED=8812 replays one.
"""

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from runtime.disk import Disk
from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.process import until
from tests.support.brokers.run_broker import CHANGING, NOT_CHANGING
from tests.support.rounds import rounds
from tests.support.samples.upgrade import DATA, broker_of, check_everything, expected_of

STEPS = rounds("TIDEMARK_STEPS", quick=2, full=6)
SEED = int(os.environ.get("TIDEMARK_STEPS_SEED", "0")) or Random().randrange(1, 1_000_000)
ALL_STEPS = bool(os.environ.get("TIDEMARK_ALL_STEPS"))


def test_every_operation_of_a_disk_is_known_to_change_it_or_not() -> None:
    operations = {name for name in vars(Disk) if not name.startswith("_")}
    assert operations == CHANGING | NOT_CHANGING


def _steps_of_a_start(archive: Path, directory: Path) -> list[int]:
    """The steps of a first start, from 1: all, or a sample of those that touch no index."""
    broker = broker_of(archive, directory)
    steps = directory / "steps"
    broker.run_with("--steps", str(steps))
    try:
        broker.start()
        lines = [line.split(" ", 2) for line in steps.read_text().splitlines()]
    finally:
        broker.close()
    if ALL_STEPS:
        return [int(number) for number, _, _ in lines]
    telling = [int(number) for number, _, path in lines if not path.endswith(("index", ".deleted"))]
    print(f"replay: TIDEMARK_STEPS_SEED={SEED}")
    run = len(telling) // STEPS
    rng = Random(SEED)
    return [telling[part * run + rng.randrange(run)] for part in range(STEPS)]


def _start_killed_before(broker: DirectoriesBroker, step: int) -> bool:
    """Whether it was killed: threads may take the steps in another order, and it is through."""
    broker.run_with("--kill-before", str(step))
    broker.start(wait=False)
    process = broker.process
    assert process is not None
    until(
        lambda: process.poll() is not None or broker.http("/ready")[0] == 200,
        "the first start ends in one way or the other",
    )
    ended = process.poll()
    assert ended in (-9, None), broker.log_tail()
    broker.close()
    broker.run_with()
    return ended is not None


@pytest.mark.integration
@pytest.mark.rounds(seconds=6 * STEPS)
@pytest.mark.timeout(86_400 if ALL_STEPS else 300)
@pytest.mark.parametrize(
    "archive", sorted(DATA.glob("*.tar.xz")), ids=lambda path: path.name.split(".")[0]
)
def test_first_start_that_is_killed_at_any_step_loses_nothing(
    archive: Path, tmp_path: Path
) -> None:
    steps = _steps_of_a_start(archive, tmp_path / "counted")
    assert len(steps) >= STEPS
    killed = 0
    for step in steps:
        broker = broker_of(archive, tmp_path / f"step-{step}")
        try:
            killed += _start_killed_before(broker, step)
            broker.start()
            check_everything(broker, expected_of(broker.directory))
        except BaseException:
            print(f"killed before step {step} of {steps}\n{broker.log_tail(200)}")
            raise
        finally:
            broker.close()
        shutil.rmtree(broker.directory)
    assert killed * 2 >= len(steps), f"only {killed} of {len(steps)} starts were killed"
