"""A segment that DeleteRecords has cut before it was copied: what is left of it can be read."""

from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from tests.support.tier.log_in_memory import values_of
from tests.support.tier.pair import Pair, bytes_of, error_of


def three_epochs(root: Path, log_start: int) -> Pair:
    """One closed segment: offsets 0 to 4 of epoch 1, 5 to 9 of epoch 2, 10 to 14 of epoch 3."""
    pair = Pair(root, chunk_bytes=100_000)
    pair.log.append(5)
    for _ in range(2):
        pair.log.new_epoch()
        pair.log.append(5)
    pair.log.roll()
    pair.log.delete_records(log_start)
    pair.assign()
    pair.log.expire_local()
    assert pair.log.local_start == 15
    return pair


@pytest.mark.parametrize("log_start", [0, 2, 5, 7, 10, 12, 14])
def test_everything_from_the_log_start_on_is_served(tmp_path: Path, log_start: int) -> None:
    pair = three_epochs(tmp_path, log_start)
    for offset in range(log_start, 15):
        epoch = 1 + offset // 5
        received = pair.read(offset, epoch=epoch, epoch_end=5 * epoch)
        assert error_of(received) == ErrorCode.NONE, offset
        expected = {(epoch, n): pair.log.truth[epoch, n] for n in range(offset, 5 * epoch)}
        assert values_of(bytes_of(received)) == expected
