"""The same scenarios on Apache Kafka: what they ask for is what Kafka gives."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.groups.clients import CLIENTS
from tests.support.groups.scenarios import SCENARIOS, Stage
from tests.support.groups.stage import played
from tests.support.groups.world import SETTINGS, World, kafka_world
from tests.support.kafka.tools import require_kafka_tools

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.long(seconds=15)]

CASES = [
    (name, scenario)
    for name, client in CLIENTS.items()
    for scenario, (_, needs) in SCENARIOS.items()
    if needs <= client.can
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One Kafka for all."""
    require_kafka_tools()
    made, end = kafka_world(tmp_path_factory.mktemp("groups"), SETTINGS)
    try:
        yield made.ready()
    finally:
        end()


@pytest.mark.parametrize(("name", "scenario"), CASES)
def test_scenario(world: World, name: str, scenario: str, tmp_path: Path) -> None:
    played(Stage(world, CLIENTS[name], tmp_path, f"{name}-{scenario}"), SCENARIOS[scenario][0])
