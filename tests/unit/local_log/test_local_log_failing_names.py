"""A disk that cannot list, make or remove names, or open an index, at any moment of a life.

What fails may take its directory offline. It costs nothing: the start after it serves everything
that was acknowledged, and no bytes of records are gone.
"""

import errno
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from broker.node.directories import DirectoryError
from kafka_protocol.errors import KafkaError
from tests.support.damage.bits import (
    COMMON,
    CONFIGS,
    RARE,
    Base,
    Lane,
    Promised,
    Served,
    append,
    log_of,
    make_bases,
    read_files,
    start,
    write_files,
)
from tests.support.damage.bits_check import record_bytes
from tests.support.damage.places import quick_directory
from tests.support.damage.whole_starts import NOW_MS, QuickDisk, WholeStart

LANES = (*COMMON, *RARE)


@pytest.fixture
def root() -> Iterator[Path]:
    with quick_directory() as path:
        yield path


def live(root: Path, base: Base, disk: QuickDisk) -> dict[Lane, Promised]:
    """Start and write, as far as it goes; the metadata of the base become those of this life.

    Returns:
        What is acknowledged now.
    """
    promised = deepcopy(base.promised)
    life = WholeStart(root, base.image, configs=CONFIGS, life=3, disk=disk)
    try:
        life.start()
        for lane, known in promised.items():
            try:
                append(life, root, lane, known, "plain")
                log_of(life, lane).roll(NOW_MS)
                append(life, root, lane, known, "plain")
            except KafkaError:
                continue  # it is offline
        life.create("new", 2)
        life.logs.run_retention(NOW_MS)
        life.remove("new")
        life.logs.run_deletions()
    except DirectoryError:
        pass  # nothing works; a restart tries again
    finally:
        life.stop()
    base.image = life.image
    return promised


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("operation", ["list_dir", "make_dirs", "open_write", "unlink"])
def test_a_name_that_fails_costs_nothing(operation: str, is_clean: bool, root: Path) -> None:
    [made] = [one for one in make_bases(root / "base", LANES) if one.is_clean == is_clean]
    after, has_failed = 0, True
    while has_failed:
        base, disk, work = replace(made), QuickDisk(), root / "work"
        write_files(work, base.files)
        disk.fail([operation], path_part=f"{work}/", error=errno.EIO, after=after)
        promised = live(work, base, disk)
        has_failed = disk.has_failed
        left = replace(base, files=read_files(work))
        found = start(work, left, {})
        assert found.refused == "", after
        for lane, known in promised.items():
            seen = found.partitions[lane]
            assert isinstance(seen, Served), (after, lane, seen)
            wanted = [batch.data for batch in known.batches if batch.next_offset > seen.start]
            assert seen.batches[: len(wanted)] == wanted, (after, lane)
            assert seen.start == known.start
        assert record_bytes(found.files) >= record_bytes(made.files), after
        after += 1
    assert after > 1, f"{operation} was never called"
