"""What is lent counts once for its connection, and no longer than until it is given back."""

from typing import Any

import pytest

from rlm.read.chunk import BatchTable, Chunk
from rlm.read.lending import LENT_SHARE, Lending, Verdict
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler

CACHE_BYTES = 8_000
LENT_BYTES = int(CACHE_BYTES * LENT_SHARE)


class Chunks:
    """Of the cache of chunks: how much of it is held."""

    held_bytes = 0

    def hand_out(self, chunk: Chunk) -> None:
        chunk.handed_out += 1
        self.held_bytes += chunk.capacity_bytes if chunk.handed_out == 1 else 0

    def take_back(self, chunk: Chunk) -> None:
        chunk.handed_out -= 1
        self.held_bytes -= 0 if chunk.handed_out else chunk.capacity_bytes


def chunk(token: int, size_bytes: int) -> Chunk:
    file: Any = None  # nobody reads it
    return Chunk(0, size_bytes, file, size_bytes, BatchTable(), token=token)


@pytest.fixture
def lending() -> Lending:
    chunks: Any = Chunks()
    return Lending(chunks, CACHE_BYTES, ManualScheduler(ManualClock()))


def test_a_chunk_that_is_lent_to_a_connection_again_counts_once(lending: Lending) -> None:
    lent = chunk(1, 1_000)
    tokens = [lending.lend("one", lent) for _ in range(3)]
    for token in tokens[:2]:
        assert lending.room("one") == LENT_BYTES - 1_000
        lending.released([token])
    assert lending.room("one") == LENT_BYTES - 1_000
    lending.released(tokens[2:])
    assert (lending.room("one"), len(lending)) == (LENT_BYTES, 0)


def test_a_copy_that_was_given_back_leaves_the_share_of_its_connection(lending: Lending) -> None:
    copy = lending.lend_copy("one", 2_000)
    lending.lend("one", chunk(1, 1_000))
    assert lending.room("one") == LENT_BYTES - 3_000
    lending.released([copy, copy])
    assert lending.room("one") == LENT_BYTES - 1_000
    assert lending.copied_bytes == 0


def test_a_chunk_that_another_connection_holds_costs_nothing_more(lending: Lending) -> None:
    lent = chunk(1, LENT_BYTES)
    assert lending.verdict("one", lent) is Verdict.LEND
    lending.lend("one", lent)
    assert lending.verdict("two", lent) is Verdict.LEND
    assert lending.verdict("two", chunk(2, 1)) is Verdict.COPY
