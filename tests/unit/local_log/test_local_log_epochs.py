"""The epoch chain."""

from kafka_protocol.types import EpochEntry
from local_log.leader_epoch_cache import EpochEnd, LeaderEpochCache


def _cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache([EpochEntry(*entry) for entry in entries])


def test_end_of_an_epoch_is_where_the_next_begins():
    cache = _cache((2, 10), (5, 20), (6, 30))
    assert cache.end_offset_for(2, 40) == EpochEnd(2, 20)
    assert cache.end_offset_for(4, 40) == EpochEnd(2, 20)  # floor
    assert cache.end_offset_for(6, 40) == EpochEnd(6, 40)
    assert cache.end_offset_for(1, 40) == EpochEnd(1, 10)  # its data is gone
    assert cache.end_offset_for(7, 40) is None
    assert cache.end_offset_for(-1, 40) is None
    assert cache.end_offset_for(-2, 40) == EpochEnd(-2, 10)  # as Kafka: only -1 says nothing
    assert _cache().end_offset_for(0, 40) is None


def test_epoch_of_an_offset_is_the_last_that_began_before():
    cache = _cache((2, 10), (5, 20))
    assert [cache.epoch_for(offset) for offset in (9, 10, 19, 20, 99)] == [None, 2, 2, 5, 5]


def test_assigning_the_same_epoch_again_changes_nothing():
    seen = []
    cache = LeaderEpochCache([EpochEntry(2, 10)], seen.append)
    cache.assign(2, 15)
    assert seen == []
    cache.assign(3, 15)
    assert seen == [[EpochEntry(2, 10), EpochEntry(3, 15)]]


def test_later_claim_on_the_same_offset_wins():
    cache = _cache((2, 10), (5, 20))
    cache.assign(6, 20)
    assert cache.entries() == [EpochEntry(2, 10), EpochEntry(6, 20)]
    cache.assign(7, 5)
    assert cache.entries() == [EpochEntry(7, 5)]


def test_truncation_from_the_end_drops_what_begins_there():
    cache = _cache((2, 10), (5, 20), (6, 30))
    cache.truncate_from_end(31)
    assert cache.latest_epoch == 6
    cache.truncate_from_end(30)
    assert cache.latest_epoch == 5
    cache.truncate_from_end(0)
    assert cache.latest_epoch is None


def test_truncation_from_the_start_clips_the_epoch_that_wrote_it():
    cache = _cache((2, 10), (5, 20), (6, 30))
    cache.truncate_from_start(5)
    assert len(cache.entries()) == 3
    cache.truncate_from_start(25)
    assert cache.entries() == [EpochEntry(5, 25), EpochEntry(6, 30)]
    cache.truncate_from_start(30)
    assert cache.entries() == [EpochEntry(6, 30)]


def test_chain_of_a_range_begins_at_the_range():
    cache = _cache((2, 10), (5, 20), (6, 30))
    assert cache.between(15, 30) == [EpochEntry(2, 15), EpochEntry(5, 20)]
    assert cache.between(20, 21) == [EpochEntry(5, 20)]
    assert cache.between(0, 11) == [EpochEntry(2, 10)]
