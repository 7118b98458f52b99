"""A log of 60 records, and the one that is to take its place."""

from kafka_protocol.files import producer_snapshot
from kafka_protocol.files.producer_snapshot import ProducerEntry
from kafka_protocol.types import EpochEntry
from local_log.log.partition_log import PartitionLog
from local_log.manager.future_dirs import NewBeginning
from local_log.manager.log_dirs import LogManager
from tests.support.worlds.local_log import NOW_MS, SMALL, with_config
from tests.support.worlds.log_manager import ORDERS

TIERED = with_config(SMALL, remote_storage_enable=True)
PRODUCER = {"producer_id": 7, "producer_epoch": 2}
SNAPSHOT = bytes(
    producer_snapshot.dump(
        [
            ProducerEntry(
                7, 2, 14, 4999, 4, NOW_MS, coordinator_epoch=-1, current_txn_first_offset=-1
            )
        ]
    )
)
CHAIN = [EpochEntry(1, 0), EpochEntry(3, 2000), EpochEntry(5, 4000), EpochEntry(8, 5000)]
CLIPPED = [EpochEntry(3, 3000), EpochEntry(5, 4000)]
BEGINNING = NewBeginning(5000, 3000, CHAIN, SNAPSHOT)
EMPTY = f"{5000:020d}"


def swapped(manager: LogManager, beginning: NewBeginning = BEGINNING) -> PartitionLog:
    swap = manager.plan_swap(manager.build_future(ORDERS, beginning))
    old = swap.future.replaces
    old.lease.grant(truncates=True)
    new = manager.take_swapped(swap, swap.carry_out())
    old.lease.take_back()
    assert isinstance(new, PartitionLog)
    return new


def check_new(log: PartitionLog | None) -> None:
    assert log is not None
    offsets = (log.log_end_offset, log.high_watermark, log.recovery_point)
    assert (log.log_start_offset, log.local_log_start_offset, *offsets) == (3000, *[5000] * 4)
    assert log.epochs.entries() == CLIPPED
    assert not log.epoch_file.lost
    assert log.last_fetched_epoch == 5
