"""The same requests to Apache Kafka and to a broker of ours: equal answers, field by field."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness_broker import BrokerProcess, free_ports
from harness_differential import Side, differences
from harness_differential_cases import READING, WRITING
from harness_differential_known import sort_out
from harness_differential_state import prepare
from harness_kafka_tools import PEERS, require_kafka_tools

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Side]:
    """Apache Kafka with a remote tier, in the common state."""
    require_kafka_tools()
    data, (port, controller_port) = tmp_path / "kafka", free_ports(2)

    def run(action: str, *more: str) -> None:
        command = [str(PEERS / "kafka"), action, "--data", str(data), *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def start() -> None:
        ports = ("--port", str(port), "--controller-port", str(controller_port))
        run("start", *ports, "--tiered", "--heap", "512m")

    side = Side("kafka", port)
    try:
        start()
        prepare(side, lambda: (run("stop"), start()))
        yield side
    finally:
        side.close()
        run("stop")


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
