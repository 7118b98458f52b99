"""Chunks of different segments that lie at the same bytes: each reader gets its own segment's."""

from pathlib import Path

import pytest

from rlm.link.messages import Released
from tests.support.tier.log_in_memory import PARTITION, values_of
from tests.support.tier.pair import Pair, bytes_of, error_of, tokens_of


def twins(root: Path, **settings: object) -> Pair:
    """Segments [100, 200), [200, 300), [300, 400): all their batches lie at the same bytes."""
    pair = Pair(root, **settings)  # type: ignore[arg-type]
    pair.log.fill(4, records=100, size_bytes=100)
    pair.assign()
    pair.log.expire_local()
    copied = pair.metadata.list_segments(PARTITION)
    assert len({each.segment_size_bytes for each in copied if each.start_offset >= 100}) == 1
    return pair


def read(pair: Pair, offset: int, max_bytes: int = 500) -> dict[int, bytes]:
    """What a reader gets that asks for `offset`, by offset."""
    received = pair.read(offset, max_bytes=max_bytes)
    assert not error_of(received)
    got = {at: value for (_, at), value in values_of(bytes_of(received)).items()}
    pair.broker.tell(Released(tokens_of(received)))
    pair.pump()
    return got


@pytest.mark.parametrize("at", [0, 37, 60, 99])
@pytest.mark.parametrize("cache_bytes", [1 << 20, 3_000], ids=["memory", "disk"])
def test_twins_are_not_mistaken_for_each_other(tmp_path: Path, at: int, cache_bytes: int) -> None:
    pair = twins(
        tmp_path,
        chunk_bytes=1_000,
        chunk_cache_bytes=cache_bytes,
        chunk_cache_disk_bytes=1 << 20,
    )
    for _ in range(3):
        for base in (100, 200, 300, 200):
            got = read(pair, base + at)
            assert base + at in got
            assert all(value == pair.log.truth[1, offset] for offset, value in got.items())
            assert min(got) > base + at - 15, "a chunk of another segment"
