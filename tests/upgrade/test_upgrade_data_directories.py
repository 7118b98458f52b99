"""Data directories of earlier days open in today's broker, and give every record back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.process import until
from tests.support.samples.upgrade import DATA, TIERED, broker_of, check_everything, expected_of

ARCHIVES = sorted(DATA.glob("*.tar.xz"))


@pytest.fixture
def open_archive(tmp_path: Path):
    opened: list[DirectoriesBroker] = []

    def at(archive: Path) -> DirectoriesBroker:
        opened.append(broker_of(archive, tmp_path / "broker"))
        return opened[-1]

    yield at
    for broker in opened:
        broker.close()
        print(broker.log_tail(200))


def test_there_are_archives_and_they_are_small() -> None:
    assert ARCHIVES
    for archive in ARCHIVES:
        assert archive.stat().st_size < 300_000


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.split(".")[0])
def test_todays_broker_reads_every_record_and_goes_on(
    archive: Path, open_archive: Callable[[Path], DirectoriesBroker]
) -> None:
    broker = open_archive(archive)
    partitions = expected_of(broker.directory)
    for one in partitions:
        if one.topic == TIERED:  # a part of it is in the store only
            assert min(broker.local_segments(TIERED, one.partition)) > one.log_start
            assert broker.remote_segments(TIERED, one.partition)[0] <= one.log_start
    broker.start()
    check_everything(broker, partitions)
    copied = len(broker.remote_segments(TIERED))
    for one in partitions:
        produce(broker, one.topic, [(b"new", b"life")], one.partition)
    until(lambda: len(broker.remote_segments(TIERED)) > copied, "copying goes on")
    assert broker.terminate() == 0
    broker.start()
    for one in partitions:
        where = (one.topic, one.partition)
        assert end_offsets(broker, *where) == (one.log_start, one.end + 1)
        assert read_all(broker, *where) == [*one.records(), (one.end, b"new", b"life")]
