"""Records that are cut into batches: each fits, none is empty, none is lost."""

from broker.coordinator.group.decision import GroupRecord
from broker.coordinator.shard import batches_of


def cut(sizes: list[int], size_max: int) -> list[list[int]]:
    """Keys of so many bytes; a record has 32 bytes beside its key."""
    records = [GroupRecord(bytes(size), None) for size in sizes]
    return [[len(one.key) for one in some] for some in batches_of(records, size_max)]


def test_as_many_records_as_fit_are_one_batch() -> None:
    assert cut([68] * 5, 200) == [[68, 68], [68, 68], [68]]
    assert cut([68] * 5, 199) == [[68]] * 5
    assert cut([68] * 5, 500) == [[68] * 5]


def test_a_record_that_is_too_large_goes_alone() -> None:
    assert cut([900, 10, 10, 900, 10], 100) == [[900], [10, 10], [900], [10]]
