"""Fixtures of the end-to-end tests: brokers started as processes, with everything of their own."""

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.brokers.process import BrokerProcess, running

SMALL_SEGMENTS = {"log.segment.bytes": "1048576"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """All but one or a few of a subject are the second stage: `make integration`."""
    if item.get_closest_marker("smoke") is None:
        item.add_marker("integration")


@pytest.fixture(scope="module")
def broker_kind() -> type[BrokerProcess]:
    """A lone node; a file may ask for another."""
    return BrokerProcess


@pytest.fixture(scope="module")
def broker(
    broker_kind: type[BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A plain broker, shared by the tests of a module: use topics of your own."""
    yield from running(broker_kind(tmp_path_factory.mktemp("plain")))


@pytest.fixture(scope="module")
def shared_tiered_broker(
    broker_kind: type[BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """The same, tiering to a directory with short intervals."""
    directory = tmp_path_factory.mktemp("tiered")
    yield from running(broker_kind(directory, tiered=True, settings=SMALL_SEGMENTS))


@pytest.fixture
def tiered_broker(broker_kind: type[BrokerProcess], tmp_path: Path) -> Iterator[BrokerProcess]:
    """The same of a test alone, which looks at the whole store."""
    directory = tmp_path / "tiered"
    yield from running(broker_kind(directory, tiered=True, settings=SMALL_SEGMENTS))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return f"tides-{zlib.crc32(request.node.nodeid.encode())}"


@pytest.fixture
def make_broker(
    broker_kind: type[BrokerProcess], tmp_path: Path
) -> Iterator[Callable[..., BrokerProcess]]:
    """Brokers that the test formats, starts and ends by itself; closed afterwards."""
    made: list[BrokerProcess] = []

    def make(
        name: str = "broker", *, kind: type[BrokerProcess] = broker_kind, **options: object
    ) -> BrokerProcess:
        """`kind` is another class of broker than this file's."""
        made.append(kind(tmp_path / name, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.close()
        print(one.log_tail(200))
