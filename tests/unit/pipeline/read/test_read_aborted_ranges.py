from kafka_protocol.records.control import ControlType, end_transaction_batch
from pipeline.read.tail import OPEN_END, aborted_ranges


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
    assert not aborted_ranges([], b"no batches at all")


class Counted(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __gt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) > other

    def __le__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) <= other


def test_many_markers_are_not_compared_with_many_transactions() -> None:
    count = 500
    data = b"".join(marker(2 * n + 1, 7) for n in range(count))
    Counted.compared = 0
    found = aborted_ranges([(7, Counted(2 * n)) for n in range(count)], data)
    assert [one.last_offset for one in found] == [2 * n + 1 for n in range(count)]
    assert 0 < Counted.compared <= count * 20
