"""`tidemark.Broker(controllers=3)`: a broker beside a quorum, inside a test suite.

Only real processes show that a killed controller costs a client nothing, and that none is left.
"""

import os
import signal
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.support.brokers.process import alive, until
from tests.support.quorum.serving import consume
from tidemark import Broker, BrokerStartError

pytestmark = pytest.mark.lasts(seconds=30)

PATIENCE_S = 60


def test_a_client_does_not_notice_the_loss_of_a_controller(tmp_path: Path) -> None:
    with Broker(tmp_path, topics=["kept"], controllers=3) as broker:
        producer = broker.producer()
        producer.produce("kept", b"one")
        assert producer.flush(PATIENCE_S) == 0
        os.kill(broker.controller_pids[1], signal.SIGKILL)
        admin = broker.admin()
        admin.create_topics([NewTopic("new", 1, 1)])["new"].result(PATIENCE_S)

        tiered = {"remote.storage.enable": "true"}
        admin.create_topics([NewTopic("tides", 1, 1, config=tiered)])["tides"].result(PATIENCE_S)
        producer.produce("tides", b"deep")
        assert producer.flush(PATIENCE_S) == 0
        (part,) = broker.tier("tides")
        assert part["local_log_start_offset"] == part["log_end_offset"] == 1

        broker.restart()  # all nodes, at other ports of the controllers
        pids = list(broker.controller_pids.values())
        assert len(pids) == 3
        assert all(map(alive, pids))
        assert consume(broker.bootstrap_servers, "kept", 1) == {b"one"}
        assert consume(broker.bootstrap_servers, "tides", 1) == {b"deep"}
        assert {"kept", "new"} <= set(broker.admin().list_topics(timeout=PATIENCE_S).topics)
        broker.kill()
        until(lambda: not any(map(alive, pids)), "its controllers end with it")
    assert "controller-1" in {one.name for one in tmp_path.iterdir()}


def test_a_controller_that_does_not_start_ends_the_start_with_its_words(tmp_path: Path) -> None:
    damaged = tmp_path / "controller-2" / "metadata"
    damaged.parent.mkdir()
    damaged.write_text("a file where the directory should be")
    with pytest.raises(BrokerStartError, match="controller-2"):
        Broker(tmp_path, controllers=3).start()
