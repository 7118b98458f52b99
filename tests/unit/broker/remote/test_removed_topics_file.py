"""The file of removed topics: what is in it, what it survives; a bad one proves nothing."""

import asyncio
import threading
from pathlib import Path

import pytest

from broker.remote.removed_topics import (
    FILE_NAME,
    RemovedTopicsFile,
    dump,
    parse,
)
from kafka_protocol.errors import CorruptFileError
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import EMPTY_IMAGE
from runtime.disk import Buffer, Disk
from runtime.executors import InlinePool
from tests.support.worlds.pools import HeldPool

CLUSTER = "tidemarkOneLife0000001"
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
NOTED = [B, A]
CONTENT = b"""\
tidemark-removed-topics 1
cluster tidemarkOneLife0000001
YmJiYmJiYmJiYmJiYmJiYg
YWFhYWFhYWFhYWFhYWFhYQ
crc b3e9ed1a
"""


def opened(directory: Path, cluster_id: str = CLUSTER) -> RemovedTopicsFile:
    file = RemovedTopicsFile(directory, cluster_id, Disk(), InlinePool())
    file.read()
    return file


def delta_of(removals: dict[bytes, bool]) -> MetadataDelta:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.tiered_removals = removals
    return delta


def test_what_is_written_is_read() -> None:
    assert dump(CLUSTER, NOTED) == CONTENT
    assert parse(CONTENT) == (CLUSTER, NOTED)


@pytest.mark.parametrize("at", range(len(CONTENT) - 1))
def test_a_changed_file_is_refused(at: int) -> None:
    changed = CONTENT[:at] + bytes([CONTENT[at] ^ 1]) + CONTENT[at + 1 :]
    for data in (CONTENT[:at], changed):
        with pytest.raises(CorruptFileError):
            parse(data)


@pytest.mark.parametrize("content", [b"", CONTENT[:60], CONTENT.replace(b"YmJi", b"YmJj")])
def test_a_damaged_file_names_nothing_and_is_written_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    file = opened(tmp_path)
    assert file.keep() == []
    file.forget(C)
    assert parse((tmp_path / FILE_NAME).read_bytes()) == (CLUSTER, [C])


def test_the_file_of_another_cluster_names_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(CONTENT)
    assert opened(tmp_path, "another").keep() == []


def test_a_new_life_knows_what_was_noted(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.follow(EMPTY_IMAGE, delta_of({A: True, B: True}))
    assert opened(tmp_path).keep() == [A, B]
    file.follow(EMPTY_IMAGE, delta_of({A: False}))
    assert opened(tmp_path).keep() == [B]
    file.drop([B])
    assert opened(tmp_path).keep() == []


async def test_what_exists_in_a_confirmed_image_is_no_removed_topic(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.follow(EMPTY_IMAGE, delta_of({A: True, B: True}))
    assert await file.kept({A, C}) == [B]
    assert opened(tmp_path).keep() == [B]


async def test_a_removal_that_is_read_behind_the_image_is_no_older_one(tmp_path: Path) -> None:
    """The topic exists in the image of the question, and is removed before a thread looks."""
    pool = HeldPool()
    file = RemovedTopicsFile(tmp_path, CLUSTER, Disk(), pool)
    kept = asyncio.ensure_future(file.kept({A}))
    await pool.until_held()
    file.follow(EMPTY_IMAGE, delta_of({A: True}))
    pool.release()
    assert await kept == [A]


def test_nothing_is_written_where_nothing_changed(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.begin(EMPTY_IMAGE)
    file.follow(EMPTY_IMAGE, delta_of({A: False}))
    assert not (tmp_path / FILE_NAME).exists()


def test_what_many_images_bring_is_written_at_once(tmp_path: Path) -> None:
    """One write waits for a thread, however many images come meanwhile."""
    pool = HeldPool()
    file = RemovedTopicsFile(tmp_path, CLUSTER, Disk(), pool)
    ids = [n.to_bytes(16, "big") for n in range(100)]
    for one in ids:
        file.follow(EMPTY_IMAGE, delta_of({one: True}))
    assert pool.held == 1
    pool.release()
    assert parse((tmp_path / FILE_NAME).read_bytes())[1] == ids
    file.forget(A)
    assert pool.held == 1


class SlowDisk(Disk):
    """A whole file is written once `continues` is set."""

    def __init__(self) -> None:
        self.began, self.continues = threading.Event(), threading.Event()

    def atomic_write(self, path: Path, data: Buffer, *, durable: bool = True) -> None:
        self.began.set()
        assert self.continues.wait(30)
        super().atomic_write(path, data, durable=durable)


def test_behind_a_slow_write_one_more_waits_for_the_disk_and_no_third(tmp_path: Path) -> None:
    """They would take all threads of a pool that flushes the metadata log, too."""
    pool, disk = HeldPool(), SlowDisk()
    file = RemovedTopicsFile(tmp_path, CLUSTER, disk, pool)
    threads = []
    for one in (A, B):
        file.follow(EMPTY_IMAGE, delta_of({one: True}))
        (write,) = pool.take()
        pool.is_holding = True
        threads.append(threading.Thread(target=write))
        threads[-1].start()
        assert disk.began.wait(30)
    threads[-1].join(0.2)  # time to come to the lock
    file.follow(EMPTY_IMAGE, delta_of({C: True}))
    assert pool.held == 0
    disk.continues.set()
    for thread in threads:
        thread.join(30)
    assert sorted(file.keep()) == [A, B, C]
    assert sorted(opened(tmp_path).keep()) == [A, B, C]
