"""What is leased of the chunk cache leaves room for loads, and something for every connection."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode
from rlm.link.endpoint import Received
from rlm.link.messages import ReadAnswer, Released
from rlm.read.chunk import BatchTable, Chunk
from rlm.read.leases import LEASED_SHARE, Leases, Verdict
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler
from tests.support.tier.log_in_memory import values_of
from tests.support.tier.pair import Pair, bytes_of, error_of, tokens_of

CACHE_BYTES = 8_000
SEGMENTS = 64
RECORDS_EACH = 4


def filled(root: Path, **settings: int) -> Pair:
    """Each segment is a chunk of about 400 bytes; the cache takes some 20 of them."""
    pair = Pair(root, chunk_cache_bytes=CACHE_BYTES, **settings)
    pair.log.fill(SEGMENTS, records=RECORDS_EACH)
    pair.assign()
    return pair


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return filled(tmp_path)


def give_back(pair: Pair, *received: Received) -> None:
    for each in received:
        pair.broker.tell(Released(tokens_of(each)))
    pair.pump()


def segment(number: int) -> int:
    """The first offset of a segment."""
    return number * RECORDS_EACH


def read_through(pair: Pair, holder: str) -> Iterator[Received]:
    """All of it, as a client that takes what it gets."""
    offset = 0
    while offset < segment(SEGMENTS):
        received = pair.read(offset, holder=holder)
        answer = received.message
        assert isinstance(answer, ReadAnswer)
        assert answer.regions, f"offset {offset}"
        assert min(values_of(bytes_of(received)))[1] <= offset
        yield received
        give_back(pair, received)
        offset = answer.next_offset


def test_64_connections_that_give_nothing_back_do_not_stop_another(pair: Pair) -> None:
    held = [pair.read(segment(n), holder=f"slow {n}", wait_ms=50) for n in range(SEGMENTS)]
    assert all(bytes_of(each) for each in held), "each gets something, if it is a copy"
    before = [bytes_of(each) for each in held]
    for _ in read_through(pair, "good"):
        chunks = pair.reads.chunks
        assert chunks.held_bytes <= CACHE_BYTES * LEASED_SHARE
        assert chunks.total_bytes <= CACHE_BYTES
    assert [bytes_of(each) for each in held] == before
    assert pair.reads.leases.copied_bytes > 0
    give_back(pair, *held)
    assert (pair.reads.chunks.held_bytes, pair.reads.leases.copied_bytes) == (0, 0)
    assert len(pair.reads.leases) == 0


def test_one_connection_holds_no_more_than_its_share(pair: Pair) -> None:
    others = [pair.read(0, holder=f"other {n}") for n in range(9)]
    held, answers = 0, []
    for number in range(1, 20):
        answers.append(pair.read(segment(number), holder="one", wait_ms=50))
        held += len(bytes_of(answers[-1]))
    assert 0 < held <= CACHE_BYTES * LEASED_SHARE / 10 + 2 * 400
    refused = [each for each in answers if not bytes_of(each)]
    assert refused
    assert {error_of(each) for each in refused} == {ErrorCode.NONE}
    give_back(pair, *others)
    # It is alone now, and may have more.
    assert bytes_of(pair.read(segment(30), holder="one"))


def test_two_chunks_are_lent_however_many_read(pair: Pair) -> None:
    others = [pair.read(0, holder=f"other {n}") for n in range(100)]
    assert all(bytes_of(each) for each in others), "the same chunk costs nothing more"
    answers = [pair.read(segment(n), holder="one", wait_ms=50) for n in (1, 2, 3)]
    assert [bool(bytes_of(each)) for each in answers] == [True, True, False]
    # What it holds it may have again.
    assert bytes_of(pair.read(segment(2), holder="one", wait_ms=50))


def test_a_read_continues_when_its_connection_gives_something_back(pair: Pair) -> None:
    for number in range(100):
        pair.read(0, holder=f"other {number}")
    first, _ = (pair.read(segment(n), holder="one") for n in (1, 2))
    third = pair.ask_to_read(segment(3), holder="one")
    pair.pump()
    assert not third.done()
    give_back(pair, first)
    assert bytes_of(third.result(0)), "no time has passed"


def test_a_read_does_not_wait_long_for_its_own_connection(pair: Pair) -> None:
    """What is held may be an answer to another partition of the same Fetch."""
    for number in range(100):
        pair.read(0, holder=f"other {number}")
    for number in (1, 2):
        pair.read(segment(number), holder="one")
    third = pair.ask_to_read(segment(3), holder="one", wait_ms=60_000)
    for _ in range(10):
        pair.scheduler.advance(5)
        pair.pump()
    assert bytes_of(third.result(0)) == b""


def test_a_copy_is_of_a_few_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm.read.reader.COPY_BYTES_MAX", 150)
    pair = filled(tmp_path)
    for number in range(SEGMENTS):
        pair.read(segment(number), holder=f"slow {number}", wait_ms=50)
    free = range(SEGMENTS - 8, SEGMENTS)  # of these nothing is leased
    copies = [pair.read(segment(n), holder=f"late {n}") for n in free]
    assert 0 < max(len(bytes_of(each)) for each in copies) <= 150
    wanted = {(1, segment(n)) for n in free}
    assert wanted <= {key for each in copies for key in values_of(bytes_of(each))}
    # A batch that is larger than that comes alone.
    monkeypatch.setattr("rlm.read.reader.COPY_BYTES_MAX", 1)
    last = [pair.read(segment(n), holder=f"last {n}") for n in free]
    assert [len(values_of(bytes_of(each))) for each in last] == [1] * len(free)


def test_no_window_takes_more_than_half_of_a_share(tmp_path: Path) -> None:
    pair = Pair(tmp_path, chunk_cache_bytes=CACHE_BYTES, chunk_bytes=100)
    pair.log.fill(1, records=60)
    pair.assign()
    for offset in range(60):  # all of it is here
        give_back(pair, pair.read(offset))
    for number in range(3):
        pair.read(59, holder=f"other {number}")
    sizes, offset = list[int](), 0
    while offset < 50:
        received = pair.read(offset, 100, holder="one", read_ahead_bytes=CACHE_BYTES)
        assert isinstance(received.message, ReadAnswer)
        sizes.append(len(bytes_of(received)))
        give_back(pair, received)
        offset = received.message.next_offset
    assert 200 < max(sizes) <= CACHE_BYTES * LEASED_SHARE / 4 / 2


LENT_BYTES = int(CACHE_BYTES * LEASED_SHARE)


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
def leases() -> Leases:
    chunks: Any = Chunks()
    return Leases(chunks, CACHE_BYTES, ManualScheduler(ManualClock()))


def test_a_chunk_that_is_lent_to_a_connection_again_counts_once(leases: Leases) -> None:
    lent = chunk(1, 1_000)
    tokens = [leases.lease("one", lent) for _ in range(3)]
    for token in tokens[:2]:
        assert leases.free_bytes("one") == LENT_BYTES - 1_000
        leases.released([token])
    assert leases.free_bytes("one") == LENT_BYTES - 1_000
    leases.released(tokens[2:])
    assert (leases.free_bytes("one"), len(leases)) == (LENT_BYTES, 0)


def test_a_copy_that_was_given_back_leaves_the_share_of_its_connection(leases: Leases) -> None:
    copy = leases.lease_copy("one", 2_000)
    leases.lease("one", chunk(1, 1_000))
    assert leases.free_bytes("one") == LENT_BYTES - 3_000
    leases.released([copy, copy])
    assert leases.free_bytes("one") == LENT_BYTES - 1_000
    assert leases.copied_bytes == 0


def test_a_chunk_that_another_connection_holds_costs_nothing_more(leases: Leases) -> None:
    lent = chunk(1, LENT_BYTES)
    assert leases.verdict("one", lent) is Verdict.LEASE
    leases.lease("one", lent)
    assert leases.verdict("two", lent) is Verdict.LEASE
    assert leases.verdict("two", chunk(2, 1)) is Verdict.COPY
