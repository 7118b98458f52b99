"""A tiered log's start is in the checkpoint before local segments go, so that a kill keeps it."""

import pytest

from kafka_protocol.types import TopicPartition
from local_log.manager.log_dirs import LogManager
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.worlds.local_log import NOW_MS, SMALL, TOPIC_ID, append, with_config

ORDERS = TopicPartition("orders", 0)


class Broker:
    """A log manager on one directory that outlives it."""

    def __init__(self, path):
        self.path = path
        self.config = with_config(remote_storage_enable=True, local_retention_ms=1000)

    def start(self):
        manager = LogManager(
            [self.path],
            lambda _topic: self.config,
            simulated(clock=ManualClock(NOW_MS)),
        )
        manager.lock()
        manager.load()
        return manager


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path / "data")


def _fill_and_copy(log):
    for i in range(60):
        append(log, at_ms=NOW_MS + i)
    log.update_high_watermark(log.log_end_offset)
    log.roll(NOW_MS)
    last = log.log_end_offset - 1
    assert log.set_copied_through(last, log.epochs.epoch_for(last))


def _kill(manager):
    manager.close(clean=False)


def test_a_kill_right_after_the_first_expiry_keeps_the_log_start(broker):
    manager = broker.start()
    _fill_and_copy(manager.create(*ORDERS, TOPIC_ID))
    assert manager.run_retention(NOW_MS + 5000)
    _kill(manager)
    log = broker.start().get(ORDERS)
    assert (log.log_start_offset, log.log_start_known) == (0, True)
    assert log.local_log_start_offset > 0


def test_a_topic_tiered_later_keeps_its_log_start_too(broker):
    tiered, broker.config = broker.config, SMALL
    manager = broker.start()
    log = manager.create(*ORDERS, TOPIC_ID)
    manager.checkpoint_log_starts()  # not listed: the first segment's name tells it
    broker.config = tiered
    log.set_config(tiered)
    _fill_and_copy(log)
    assert manager.run_retention(NOW_MS + 5000)
    _kill(manager)
    assert broker.start().get(ORDERS).log_start_known


def test_the_checkpoint_is_not_written_again_when_nothing_is_new(broker):
    manager = broker.start()
    manager.create(*ORDERS, TOPIC_ID)
    manager.run_retention(NOW_MS)
    written = (broker.path / "log-start-offset-checkpoint").stat().st_mtime_ns
    manager.run_retention(NOW_MS)
    assert (broker.path / "log-start-offset-checkpoint").stat().st_mtime_ns == written
