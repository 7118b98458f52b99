"""One of two log directories is full, read-only, gone or broken: nothing is lost or hidden."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.mounts import mount_namespace, why_no_mounts
from tests.support.brokers.tiered_topics import QUICK
from tests.support.damage.directory_faults import FAULTS, Disk
from tests.support.damage.fault_rounds import Rounds, replay_line
from tests.support.rounds import rounds

pytestmark = pytest.mark.lasts(seconds=30)

ROUNDS = rounds("TIDEMARK_FAULT_ROUNDS", quick=2, full=5)
SEED = int(os.environ.get("TIDEMARK_DIRECTORY_SEED", "0")) or Random().randrange(1, 1_000_000)
ONLY = {kind.__name__: kind for kind in FAULTS}.get(os.environ.get("TIDEMARK_FAULT_KIND", ""))


@pytest.fixture
def make_rounds(tmp_path: Path) -> Iterator[Callable[[bool], Rounds]]:
    """Rounds of a broker with two log directories, each one a file system where that is permitted.

    The argument: whether the metadata log has a directory of its own, too.
    """
    with ExitStack() as stack:
        made: list[DirectoriesBroker] = []

        def make(own_metadata_directory: bool) -> Rounds:
            paths = [tmp_path / "one", tmp_path / "two"]
            broker = DirectoriesBroker(
                tmp_path / "broker",
                log_directories=paths,
                tiered=True,
                settings=QUICK | {"log.index.size.max.bytes": "65536"},
            )
            made.append(broker)
            if own_metadata_directory:
                broker.settings["metadata.log.dir"] = str(tmp_path / "metadata")
            reason = why_no_mounts()
            if not reason:
                broker.run_in(stack.enter_context(mount_namespace()))
            keeps = [None if reason else tmp_path / f"keep-{path.name}" for path in paths]
            disks = [Disk(broker, path, keep) for path, keep in zip(paths, keeps, strict=True)]
            for disk in disks:
                disk.mount()
            exposed = [0, 1] if own_metadata_directory else [1]
            return Rounds(broker, disks, exposed, SEED, has_mounts=not reason)

        try:
            yield make
        finally:
            for broker in made:
                broker.close()
                print(broker.log_tail(300))


@pytest.mark.slow
@pytest.mark.rounds(seconds=10 * ROUNDS)
@pytest.mark.timeout(60 + 90 * ROUNDS)
@pytest.mark.parametrize("own_metadata_directory", [False, True], ids=["shared", "own-metadata"])
def test_faults_of_one_directory_hide_and_lose_nothing(
    own_metadata_directory: bool, make_rounds: Callable[[bool], Rounds]
) -> None:
    print(replay_line(SEED, ROUNDS))
    rounds = make_rounds(own_metadata_directory)
    if ONLY is not None and ONLY.needs_mount and not rounds.has_mounts:
        pytest.skip(f"{ONLY.__name__} needs a mount: {why_no_mounts()}")
    rounds.prepare()
    # Half of the rounds each: every kind of fault comes before one comes again.
    for number in range(int(own_metadata_directory), ROUNDS, 2):
        rounds.round(number, ONLY)
    if not rounds.has_mounts:
        left_out = [kind.__name__ for kind in FAULTS if kind.needs_mount]
        pytest.skip(
            f"{len(left_out)} of {len(FAULTS)} kinds of faults need a mount ({', '.join(left_out)})"
            f", the others passed: {why_no_mounts()}"
        )
