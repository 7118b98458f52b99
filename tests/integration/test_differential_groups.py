"""The same conversations about groups with Apache Kafka and with a broker of ours."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.differential.comparison import Side
from tests.support.differential.groups.comparison import SETTINGS, differences, everything
from tests.support.differential.groups.known import KNOWN
from tests.support.differential.known import sort_out
from tests.support.kafka.peer import KafkaPeer
from tests.support.kafka.tools import require_kafka_tools

pytestmark = [pytest.mark.lasts(seconds=65), pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaPeer]:
    """Apache Kafka with the settings of the comparison."""
    require_kafka_tools()
    peer = KafkaPeer(tmp_path / "kafka", tuple(f"{k}={v}" for k, v in SETTINGS.items()))
    try:
        peer.start()
        yield peer
    finally:
        peer.stop()


def test_every_conversation_about_groups_goes_as_with_kafka(
    kafka: KafkaPeer, tmp_path: Path
) -> None:
    def restart_kafka(more: dict[str, str]) -> None:
        kafka.overrides += tuple(f"{name}={value}" for name, value in more.items())
        kafka.restart()

    def restart_ours(more: dict[str, str]) -> None:
        broker.settings |= more
        broker.terminate()
        broker.start()

    theirs = everything(Side("kafka", kafka.port), restart_kafka)
    broker = BrokerProcess(tmp_path / "ours", settings=SETTINGS)
    try:
        broker.start()
        mine = everything(Side("ours", broker.port), restart_ours)
    finally:
        broker.close()
    assert len(theirs) > 200
    unexplained, unused = sort_out(list(differences(theirs, mine)), KNOWN)
    assert not unexplained, "\n".join(unexplained[:100])
    assert not unused, f"rules that explain nothing: {unused}"
    assert "Traceback" not in broker.log_text()
