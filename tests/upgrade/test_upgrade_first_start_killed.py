"""The first start on directories of earlier days may be killed at any step: nothing is lost.

TIDEMARK_ALL_STEPS=1 kills before every operation that changes the disk, instead of a sample.
"""

import os
import shutil
from pathlib import Path

import pytest
from harness_broker import until
from harness_directories import DirectoriesBroker
from run_broker import CHANGING, NOT_CHANGING
from upgrade_samples import DATA, broker_of, check_everything, expected_of

from runtime.disk import Disk

STEPS_IN_CI = 6
ALL_STEPS = bool(os.environ.get("TIDEMARK_ALL_STEPS"))
ARCHIVES = [
    "before-file-safety-one-directory-kraft1-clean",
    "before-file-safety-two-directories-kraft1-killed",
]


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
    return telling[:: len(telling) // STEPS_IN_CI]


def _start_killed_before(broker: DirectoriesBroker, step: int) -> None:
    broker.run_with("--kill-before", str(step))
    broker.start(wait=False)
    process = broker.process
    assert process is not None
    until(
        lambda: process.poll() is not None or broker.http("/ready")[0] == 200,
        "the first start ends in one way or the other",
    )
    assert process.poll() in (-9, None), broker.log_tail()
    broker.close()  # threads took the steps in another order: it is through already
    broker.run_with()


@pytest.mark.timeout(86_400 if ALL_STEPS else 300)
@pytest.mark.parametrize("name", ARCHIVES)
def test_first_start_that_is_killed_at_any_step_loses_nothing(name: str, tmp_path: Path) -> None:
    archive = DATA / f"{name}.tar.xz"
    steps = _steps_of_a_start(archive, tmp_path / "counted")
    assert len(steps) >= STEPS_IN_CI
    for step in steps:
        broker = broker_of(archive, tmp_path / f"step-{step}")
        try:
            _start_killed_before(broker, step)
            broker.start()
            check_everything(broker, expected_of(broker.directory))
        except BaseException:
            print(f"killed before step {step} of {steps}\n{broker.log_tail(200)}")
            raise
        finally:
            broker.close()
        shutil.rmtree(broker.directory)
