"""Fixtures for suites that want a broker; pytest finds them where Tidemark is installed.

Nothing is imported and nothing starts before a test asks for one of them. PYTEST_DONT_REWRITE
"""

import re
import secrets
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakSet

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tidemark.embedded.broker import Broker
    from tidemark.embedded.faults import Faults

__tracebackhide__ = True
_TOPIC_CHARS_MAX: Final = 200
_MARKER: Final = "kafka_topic"
_sizes: "pytest.StashKey[dict[Path, int]]" = pytest.StashKey()
"""Of the logs of all brokers that were known when a test began."""
_known: "WeakSet[Broker]" = WeakSet()
_admins: "WeakKeyDictionary[Broker, tuple[str, AdminClient]]" = WeakKeyDictionary()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini entries `tidemark_settings` and `tidemark_start_timeout`."""
    parser.addini(
        "tidemark_settings",
        "settings of the broker of the fixture tidemark_broker, a line `name=value` each",
        type="linelist",
    )
    parser.addini(
        "tidemark_start_timeout", "seconds that the start of this broker may take", default="60"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(partitions=1, configs=None): of the topic that the fixtures kafka_topic and"
        " tidemark_cluster_topic create",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note how far the logs of the brokers are."""
    if _known:
        from tidemark.embedded.log_lines import log_sizes

        item.stash[_sizes] = {
            path: size for broker in _known for path, size in log_sizes(_logs(broker)).items()
        }


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, Any, None]:
    """Show with a failure what the test's brokers have warned of since it began."""
    outcome = yield
    module = sys.modules.get("tidemark.embedded.broker")
    if module is None:
        return
    given = getattr(item, "funcargs", {}).values()
    brokers = {one for one in given if isinstance(one, module.Broker)}
    report = outcome.get_result()
    from tidemark.embedded.log_lines import log_sizes, warnings_since

    sizes = item.stash.setdefault(_sizes, {})
    if report.when == "setup" and report.passed:  # what one says that starts is none of the test's
        for broker in brokers.difference(_known):
            sizes.update(log_sizes(_logs(broker)))
    _known.update(brokers)
    if not report.failed:
        return
    for broker in brokers:
        if said := broker.faults_in_force():
            report.sections.append((f"Tidemark faults during {report.when}", said))
        if said := warnings_since(_logs(broker), sizes):
            report.sections.append((f"Tidemark warnings during {report.when}", said))


def _logs(broker: "Broker") -> "dict[int, Path]":
    from tidemark.embedded.errors import BrokerError

    try:
        return broker.log_files
    except BrokerError:  # it is closed
        return {}


@pytest.fixture(scope="session")
def tidemark_settings(pytestconfig: pytest.Config) -> dict[str, Any]:
    """Settings of the broker, from the ini file; a suite may override this fixture."""
    found = {}
    for line in pytestconfig.getini("tidemark_settings"):
        name, sign, value = line.partition("=")
        if not sign:
            raise pytest.UsageError(f"tidemark_settings: {line!r} is not of the form name=value")
        found[name.strip()] = value.strip()
    return found


@pytest.fixture(scope="session")
def tidemark_broker(
    pytestconfig: pytest.Config, tidemark_settings: dict[str, Any]
) -> "Iterator[Broker]":
    """A broker on a free port for the whole session; under xdist one for each worker."""
    from tidemark.embedded.broker import Broker

    timeout_s = float(pytestconfig.getini("tidemark_start_timeout"))
    with Broker(settings=tidemark_settings, start_timeout_s=timeout_s) as broker:
        yield broker


@pytest.fixture(scope="session")
def tidemark_cluster_nodes(
    pytestconfig: pytest.Config, tidemark_settings: dict[str, Any]
) -> "Iterator[Broker]":
    """Three brokers for the whole session, as the last test left them."""
    from tidemark.embedded.broker import Broker

    timeout_s = float(pytestconfig.getini("tidemark_start_timeout"))
    with Broker(settings=tidemark_settings, brokers=3, start_timeout_s=timeout_s) as cluster:
        yield cluster


def _whole(cluster: "Broker") -> "Broker":
    """All of its nodes run, reach each other and have no faults."""
    cluster.restore()
    for node_id in cluster.broker_pids:
        cluster.faults_on(node_id).clear_used()
    return cluster


@pytest.fixture
def tidemark_cluster(tidemark_cluster_nodes: "Broker") -> "Broker":
    """Three brokers that keep three copies; nodes that an earlier test lost are back."""
    return _whole(tidemark_cluster_nodes)


@pytest.fixture
def kafka_bootstrap_servers(tidemark_broker: "Broker") -> str:
    """host:port of the broker; one that an earlier test stopped or paused continues."""
    tidemark_broker.start().resume()
    return tidemark_broker.bootstrap_servers


def _admin_of(broker: "Broker") -> "AdminClient":
    """One admin client for all topics; of no fixture, whose scope would be that of the broker."""
    address, client = _admins.get(broker, ("", None))
    if client is None or address != broker.bootstrap_servers:
        client = broker.admin(log_level=2)  # it prints each end of the broker otherwise
        _admins[broker] = broker.bootstrap_servers, client
    return client


def _fresh_topic(request: pytest.FixtureRequest, broker: "Broker") -> str:
    """A topic as the test's marker has it, named after the test."""
    from tidemark.embedded.clients import create_topics
    from tidemark.embedded.topics import new_topic

    marker = request.node.get_closest_marker(_MARKER)
    given = {} if marker is None else marker.kwargs
    if marker is not None and (marker.args or given.keys() - {"partitions", "configs"}):
        raise pytest.UsageError(f"{_MARKER}: there are partitions=... and configs=..., by name")
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:_TOPIC_CHARS_MAX].strip("-")
    name = f"{words}-{secrets.token_hex(4)}"
    create_topics(_admin_of(broker), [new_topic(f"the marker {_MARKER}", name, **given)])
    return name


@pytest.fixture
def tidemark_cluster_topic(
    request: pytest.FixtureRequest, tidemark_cluster: "Broker"
) -> Iterator[str]:
    """A fresh topic with three copies; deleted after the test."""
    from tidemark.embedded.clients import delete_topic

    name = _fresh_topic(request, tidemark_cluster)
    yield name
    delete_topic(_admin_of(_whole(tidemark_cluster)), name)


@pytest.fixture
def kafka_topic(
    request: pytest.FixtureRequest, tidemark_broker: "Broker", kafka_bootstrap_servers: str
) -> Iterator[str]:
    """A fresh topic, named after the test; deleted after it."""
    from tidemark.embedded.clients import delete_topic

    name = _fresh_topic(request, tidemark_broker)
    yield name
    if tidemark_broker.is_running:  # else it goes with the broker's data
        tidemark_broker.resume()
        tidemark_broker.faults.clear_used()
        delete_topic(_admin_of(tidemark_broker), name)


@pytest.fixture
def tidemark_faults(tidemark_broker: "Broker", kafka_bootstrap_servers: str) -> "Iterator[Faults]":
    """Faults of the broker; those that the test leaves are removed after it."""
    yield tidemark_broker.faults
    if tidemark_broker.is_running:
        tidemark_broker.resume()
        tidemark_broker.faults.clear_used()
