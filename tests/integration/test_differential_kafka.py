"""The same requests to Apache Kafka and to a broker of ours: equal answers, field by field."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.differential.cases import READING, WRITING
from tests.support.differential.comparison import Side, differences
from tests.support.differential.known import sort_out
from tests.support.differential.state import prepare
from tests.support.kafka.peer import KafkaPeer
from tests.support.kafka.tools import require_kafka_tools

pytestmark = [pytest.mark.lasts(seconds=65), pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Side]:
    """Apache Kafka with a remote tier, in the common state."""
    require_kafka_tools()
    peer = KafkaPeer(tmp_path / "kafka")
    side = Side("kafka", peer.port)
    try:
        peer.start()
        prepare(side, peer.restart)
        yield side
    finally:
        side.close()
        peer.stop()


def test_every_answer_is_kafkas_but_for_what_is_written_down(kafka: Side, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "ours", tiered=True)
    ours = Side("ours", broker.port)
    try:
        broker.start()
        prepare(ours, lambda: (broker.terminate(), broker.start()))
        lines: list[str] = []
        for cases in (*READING, *WRITING):
            lines += differences(kafka, ours, list(cases()))
    finally:
        ours.close()
        broker.close()
    unexplained, unused = sort_out(lines)
    assert not unexplained, "\n".join(unexplained[:100])
    assert not unused, f"rules that explain nothing: {unused}"
    assert "Traceback" not in broker.log_text()
