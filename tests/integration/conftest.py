"""Fixtures of the end-to-end tests: brokers started as processes, with everything of their own."""

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.brokers.process import BrokerProcess, running
from tests.support.quorum.quorum import Quorum

SMALL_SEGMENTS = {"log.segment.bytes": "1048576"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """All but one or a few of a subject are the second stage: `make integration`."""
    if item.get_closest_marker("smoke") is None:
        item.add_marker("integration")


@pytest.fixture(scope="module")
def quorum() -> Callable[[], Quorum] | None:
    """Starts controllers beside which a broker is nothing else; mostly none: a combined node."""
    return None


def made(quorum: Callable[[], Quorum] | None, directory: Path, **options: object) -> BrokerProcess:
    """A broker in a directory: a combined node, or alone beside controllers of its own."""
    broker = BrokerProcess(directory, **options)  # type: ignore[arg-type]
    if quorum is not None:
        broker.stand_beside(quorum().membership)
    return broker


@pytest.fixture(scope="module")
def broker(
    quorum: Callable[[], Quorum] | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A plain broker, shared by the tests of a module: use topics of your own."""
    yield from running(made(quorum, tmp_path_factory.mktemp("plain")))


@pytest.fixture(scope="module")
def shared_tiered_broker(
    quorum: Callable[[], Quorum] | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """The same, tiering to a directory with short intervals."""
    directory = tmp_path_factory.mktemp("tiered")
    yield from running(made(quorum, directory, tiered=True, settings=SMALL_SEGMENTS))


@pytest.fixture
def tiered_broker(quorum: Callable[[], Quorum] | None, tmp_path: Path) -> Iterator[BrokerProcess]:
    """The same of a test alone, which looks at the whole store."""
    directory = tmp_path / "tiered"
    yield from running(made(quorum, directory, tiered=True, settings=SMALL_SEGMENTS))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return f"tides-{zlib.crc32(request.node.nodeid.encode())}"


@pytest.fixture
def make_broker(
    quorum: Callable[[], Quorum] | None, tmp_path: Path
) -> Iterator[Callable[..., BrokerProcess]]:
    """Brokers that the test formats, starts and ends by itself; closed afterwards."""
    all_made: list[BrokerProcess] = []

    def make(name: str = "broker", **options: object) -> BrokerProcess:
        all_made.append(made(quorum, tmp_path / name, **options))
        return all_made[-1]

    yield make
    for one in all_made:
        one.close()
        print(one.log_tail(200))
