"""Groups of each client library on a broker of ours: the scenarios of `tests/support/groups`.

`make test` plays a share: what goes further along the same path is left to `make prove`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.groups.clients import CLIENTS
from tests.support.groups.scenarios import SCENARIOS, Stage
from tests.support.groups.stage import played
from tests.support.groups.world import SETTINGS, World, our_world

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=60)]

PYTHON = {
    "confluent-kafka": frozenset(SCENARIOS) - {"several-topics", "reset", "shared", "killed"},
    "aiokafka": frozenset({"shared"}),
    "kafka-python": frozenset({"killed"}),
}
OTHERS = {
    "kcat": "shared",
    "java": "alone",
    "sarama": "shared",
    "franz-go": "cooperative",
    "kafkajs": "alone",
    "platformatic": "alone",
}


def _cases() -> Iterator[object]:
    for name, client in CLIENTS.items():
        for scenario, (_, needs) in SCENARIOS.items():
            if needs <= client.can:
                is_short = scenario in PYTHON.get(name, ()) or OTHERS.get(name) == scenario
                marks = [] if is_short else [pytest.mark.long(seconds=12)]
                yield pytest.param(name, scenario, marks=marks, id=f"{name}-{scenario}")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One broker for all: each scenario has a group and topics of its own."""
    made, end = our_world(tmp_path_factory.mktemp("groups"), SETTINGS)
    try:
        yield made.ready()
    finally:
        end()


@pytest.mark.parametrize(("name", "scenario"), list(_cases()))
def test_scenario(world: World, name: str, scenario: str, tmp_path: Path) -> None:
    played(Stage(world, CLIENTS[name], tmp_path, f"{name}-{scenario}"), SCENARIOS[scenario][0])
