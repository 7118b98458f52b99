"""What a broker's process sets up for itself before it starts."""

import logging
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("roles", "listeners", "named"),
    [
        (
            "broker,controller",
            "PLAINTEXT://:9092,LOCAL://127.0.0.1:9094,CONTROLLER://0.0.0.0:9093",
            "listeners=PLAINTEXT://:9092,CONTROLLER://0.0.0.0:9093;",
        ),
        (
            "broker,controller",
            "PLAINTEXT://localhost:9092,CONTROLLER://[::]:9093",
            "listeners=CONTROLLER://[::]:9093;",
        ),
        ("controller", "CONTROLLER://:9093", "listeners=CONTROLLER://:9093;"),
        ("broker,controller", "PLAINTEXT://[::1]:9092,CONTROLLER://127.0.0.2:9093", ""),
        ("controller", "CONTROLLER://localhost:9093", ""),
    ],
)
def test_a_start_warns_once_of_all_listeners_that_other_machines_reach(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, roles: str, listeners: str, named: str
) -> None:
    config = load(
        process__roles=roles,
        listeners=listeners,
        advertised__listeners=None if roles == "controller" else "PLAINTEXT://localhost:9092",
        listener__security__protocol__map=(
            "PLAINTEXT:PLAINTEXT,LOCAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        log__dirs=str(tmp_path / "not formatted"),  # the start ends before anything is bound
    )
    with caplog.at_level(logging.WARNING):
        assert run(config) == EXIT_FAILED
    said = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(said) == bool(named)
    assert all(named in one for one in said)
