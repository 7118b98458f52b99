"""Bad input against running brokers: a row's case, then all that must hold after any.

The cases are in `tests/support/bad_input/rows`; a row that is tested elsewhere or not served yet
stands in `tests/support/bad_input/table.py`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bad_input.case import Case, On
from tests.support.bad_input.conditions import WellAfterwards, make_health_topic
from tests.support.bad_input.stage import Stage
from tests.support.bad_input.table import CASES
from tests.support.brokers.process import BrokerProcess

pytestmark = pytest.mark.lasts(seconds=90)

SETTINGS = {
    On.PLAIN: {"group.initial.rebalance.delay.ms": "0", "message.max.bytes": "1048588"},
    On.NARROW: {
        "tidemark.request.receive.timeout.ms": "1000",
        "tidemark.connection.write.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
        "max.connections.per.ip": "40",
    },
}


class Brokers:
    """A broker of each kind, started for the first case that wants it."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._topics = directory, dict[On, str]()
        self.started: dict[On, BrokerProcess] = {}

    def get(self, on: On) -> tuple[BrokerProcess, str]:
        """The broker, and a topic of its validator."""
        if on not in self.started:
            directory = self._directory / on.value / "broker"
            self.started[on] = BrokerProcess(directory, settings=SETTINGS[on])
            self._topics[on] = make_health_topic(self.started[on].start())
        return self.started[on], self._topics[on]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    made = Brokers(tmp_path_factory.mktemp("brokers"))
    yield made
    for broker in made.started.values():
        broker.close()


def marked(number: int, one: Case) -> Any:
    """One in eight is a smoke test."""
    smoke = [] if number % 8 or one.alone else [pytest.mark.smoke]
    return pytest.param(one, id=one.id, marks=[pytest.mark.alone] if one.alone else smoke)


@pytest.mark.parametrize("one", [marked(number, one) for number, one in enumerate(CASES)])
def test_bad_input(brokers: Brokers, one: Case) -> None:
    broker, health_topic = brokers.get(one.on)
    with WellAfterwards(broker, health_topic) as validate:
        with Stage(broker) as stage:
            one.act(stage)
        validate.validate(stage, peak_bytes=one.peak_bytes)
