"""Memory that the broker still reads is not written again, whatever the policy would evict."""

from pathlib import Path

import pytest

from rlm.link.messages import Released
from rlm.read.eviction_policy import POLICIES
from tests.support.tier.log_in_memory import values_of
from tests.support.tier.pair import Pair, bytes_of, tokens_of


@pytest.mark.parametrize("policy", POLICIES)
def test_a_held_chunk_that_one_reader_came_to_keeps_its_bytes(tmp_path: Path, policy: str) -> None:
    """Each policy would evict it first: nobody came to it again."""
    pair = Pair(tmp_path, chunk_cache_bytes=1_300, chunk_cache_policy=policy)
    pair.log.fill(1, records=60)
    pair.assign()
    held = pair.read(0, max_bytes=100)
    before = bytes_of(held)
    assert (1, 0) in values_of(before)
    for offset in range(10, 60, 2):
        received = pair.read(offset, max_bytes=100)
        assert (1, offset) in values_of(bytes_of(received))
        pair.broker.tell(Released(tokens_of(received)))
        pair.pump()
        assert pair.reads.chunks.total_bytes <= 1_300
        assert bytes_of(held) == before, offset
    pair.broker.tell(Released(tokens_of(held)))
    pair.pump()
    for offset in range(10, 60, 2):
        received = pair.read(offset, max_bytes=100)
        pair.broker.tell(Released(tokens_of(received)))
        pair.pump()
    assert bytes_of(held) != before, "given back, its memory is used again"
