"""Data directories of earlier days open in today's broker, and give every record back."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from harness_broker import BrokerProcess, until
from harness_clients import end_offsets, produce, read_all
from upgrade_samples import DATA, DELETED_BELOW, PLAIN, TIERED, broker_at, expected, unpack

ARCHIVES = sorted(DATA.glob("*.tar.xz"))
RUNS = [(PLAIN, 0), (PLAIN, 1), (TIERED, 0)]


@pytest.fixture
def open_archive(tmp_path: Path):
    opened: list[BrokerProcess] = []

    def at(archive: Path) -> BrokerProcess:
        unpack(archive, tmp_path / "broker")
        version = int(re.search(r"kraft(\d)", archive.name)[1])
        opened.append(broker_at(tmp_path / "broker", kraft_version=version))
        return opened[-1]

    yield at
    for broker in opened:
        broker.close()
        print(broker.log_tail(200))


def test_there_are_archives_and_they_are_small() -> None:
    assert len(ARCHIVES) >= 4
    for archive in ARCHIVES:
        assert archive.stat().st_size < 300_000


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.split(".")[0])
def test_todays_broker_reads_every_record_and_goes_on(
    archive: Path, open_archive: Callable[[Path], BrokerProcess]
) -> None:
    broker = open_archive(archive)
    local = min(broker.local_segments(TIERED))
    assert local > 0
    assert broker.remote_segments(TIERED)[0] == 0
    broker.start()
    assert end_offsets(broker, PLAIN)[0] == DELETED_BELOW
    assert end_offsets(broker, TIERED)[0] == 0
    for topic, partition in RUNS:
        assert read_all(broker, topic, partition) == expected(topic, partition)
    copied = len(broker.remote_segments(TIERED))
    for topic, partition in RUNS:
        produce(broker, topic, [(b"new", b"life")], partition)
    until(lambda: len(broker.remote_segments(TIERED)) > copied, "copying goes on")
    assert broker.terminate() == 0
    broker.start()
    for topic, partition in RUNS:
        known = expected(topic, partition)
        offset = known[-1][0] + 1
        assert read_all(broker, topic, partition) == [*known, (offset, b"new", b"life")]
