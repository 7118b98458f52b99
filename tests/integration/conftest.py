"""Fixtures of the end-to-end tests: brokers started as processes, with everything of their own."""

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.brokers.process import BrokerProcess, running
from tests.support.quorum.quorum import Quorum

BESIDE_ID = 11
SMALL_SEGMENTS = {"log.segment.bytes": "1048576"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """All but one or a few of a subject are the second stage: `make integration`."""
    if item.get_closest_marker("smoke") is None:
        item.add_marker("integration")


@pytest.fixture(scope="module")
def controllers() -> Quorum | None:
    """Beside which a broker is nothing else; of most tests none: a combined node."""
    return None


def made(controllers: Quorum | None, directory: Path, **options: object) -> BrokerProcess:
    """A broker in a directory, a combined node or beside these controllers."""
    if controllers is None:
        return BrokerProcess(directory, **options)  # type: ignore[arg-type]
    broker = BrokerProcess(directory, **{"node_id": BESIDE_ID} | options)  # type: ignore[arg-type]
    secret = controllers.directory / "cluster.secret"
    secret.write_text(f"{'5a' * 32}\n")
    secret.chmod(0o600)
    settings = {"tidemark.cluster.secret.file": str(secret)}
    membership = controllers.membership
    broker.stand_beside(membership.settings() | settings, membership.cluster_id)
    return broker


@pytest.fixture(scope="module")
def broker(
    controllers: Quorum | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A plain broker, shared by the tests of a module: use topics of your own."""
    yield from running(made(controllers, tmp_path_factory.mktemp("plain")))


@pytest.fixture(scope="module")
def shared_tiered_broker(
    controllers: Quorum | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """The same, tiering to a directory with short intervals."""
    directory = tmp_path_factory.mktemp("tiered")
    yield from running(made(controllers, directory, tiered=True, settings=SMALL_SEGMENTS))


@pytest.fixture
def tiered_broker(controllers: Quorum | None, tmp_path: Path) -> Iterator[BrokerProcess]:
    """The same of a test alone, which looks at the whole store."""
    directory = tmp_path / "tiered"
    yield from running(made(controllers, directory, tiered=True, settings=SMALL_SEGMENTS))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return f"tides-{zlib.crc32(request.node.nodeid.encode())}"


@pytest.fixture
def make_broker(
    controllers: Quorum | None, tmp_path: Path
) -> Iterator[Callable[..., BrokerProcess]]:
    """Brokers that the test formats, starts and ends by itself; closed afterwards."""
    all_made: list[BrokerProcess] = []

    def make(name: str = "broker", **options: object) -> BrokerProcess:
        all_made.append(made(controllers, tmp_path / name, **options))
        return all_made[-1]

    yield make
    for one in all_made:
        one.close()
        print(one.log_tail(200))
