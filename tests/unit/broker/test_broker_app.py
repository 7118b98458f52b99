"""What a broker's process sets up for itself before it starts."""

import sys
from pathlib import Path

from broker.app import EXIT_FAILED, run
from runtime.executors import SWITCH_INTERVAL_S
from tests.support.samples.config import load


def test_a_broker_process_favours_its_event_loop(tmp_path: Path) -> None:
    before = sys.getswitchinterval()
    try:
        assert run(load(log__dirs=str(tmp_path / "not formatted"))) == EXIT_FAILED
        assert sys.getswitchinterval() < SWITCH_INTERVAL_S * 1.01
    finally:
        sys.setswitchinterval(before)
