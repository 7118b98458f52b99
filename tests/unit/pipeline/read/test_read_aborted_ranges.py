from kafka_protocol.records.control import ControlType, end_transaction_batch
from pipeline.read.aborted_ranges import OPEN_END, aborted_ranges


def marker(offset: int, producer: int) -> bytes:
    return bytes(
        end_transaction_batch(
            ControlType.ABORT,
            base_offset=offset,
            leader_epoch=0,
            timestamp_ms=0,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
        )
    )


def test_a_range_ends_at_the_producers_first_marker() -> None:
    found = aborted_ranges([(8, 2), (7, 0), (7, 5)], marker(4, 7) + marker(6, 8) + marker(9, 7))
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in found] == [
        (7, 0, 4),
        (8, 2, 6),
        (7, 5, 9),
    ]


def test_a_range_without_a_marker_has_no_end() -> None:
    (found,) = aborted_ranges([(7, 5)], marker(4, 7))
    assert found.last_offset == OPEN_END


def test_nothing_aborted_costs_no_walk() -> None:
    assert aborted_ranges([], b"no batches at all") == ()
