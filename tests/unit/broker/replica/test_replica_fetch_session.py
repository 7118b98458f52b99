"""Fetch sessions: KIP-227 as clients live it."""

import pytest

from broker.replica import fetch_session
from broker.replica.fetch_session import (
    EPOCH_MAX,
    EVICTION_MS,
    FINAL_EPOCH,
    SLICE_PARTITIONS,
    FetchContext,
    FetchSessionCache,
    next_epoch,
)
from broker.replica.fetch_types import FetchPartition, PartitionRead
from kafka_protocol.errors import ApiError, ErrorCode
from runtime.work import Steps, at_once
from tests.support.sim.rng import SeededRng


def cache(slots: int = 10) -> FetchSessionCache:
    return FetchSessionCache(slots_max=slots, rng=SeededRng(1))


def ask(topic: str, index: int = 0, offset: int = 0) -> FetchPartition:
    return FetchPartition((topic, index), topic, None, index, offset, 1000)


def begin(
    sessions: FetchSessionCache,
    session_id: int,
    epoch: int,
    *asked: FetchPartition,
    forgotten: tuple[tuple[str, int], ...] = (),
    with_ids: bool = False,
    now_ms: int = 0,
) -> FetchContext:
    return at_once(
        sessions.begin(
            session_id=session_id,
            session_epoch=epoch,
            asked=asked,
            forgotten=forgotten,
            with_ids=with_ids,
            now_ms=now_ms,
        )
    )


def read(
    fetch: FetchPartition,
    *,
    high_watermark: int = 5,
    log_start_offset: int = 0,
    size: int = 0,
    error: int = 0,
) -> PartitionRead:
    made = PartitionRead(fetch, error)
    made.high_watermark, made.log_start_offset = high_watermark, log_start_offset
    made.size_bytes = size
    return made


def answered(context: FetchContext, **sizes: int) -> list[str]:
    """Topics in the answer, when the topics named in `sizes` have so many bytes."""
    reads = [read(p, size=sizes.get(p.topic, 0)) for p in context.partitions]
    return [r.fetch.topic for r in context.to_answer(reads)]


def test_epoch_minus_one_makes_no_session() -> None:
    sessions = cache()
    context = begin(sessions, 0, -1, ask("a"))
    assert context.session_id == 0
    assert len(sessions) == 0
    assert answered(context) == ["a"]


def test_epoch_zero_makes_a_session_that_remembers() -> None:
    sessions = cache()
    first = begin(sessions, 0, 0, ask("a"), ask("b"))
    assert first.session_id > 0
    assert answered(first) == ["a", "b"]
    second = begin(sessions, first.session_id, 1)
    assert [p.topic for p in second.partitions] == ["a", "b"]
    assert answered(second) == []
    assert second.session_id == first.session_id


def test_an_incremental_answer_names_what_is_new() -> None:
    sessions = cache()
    first = begin(sessions, 0, 0, ask("a"), ask("b"), ask("c"))
    answered(first)
    second = begin(sessions, first.session_id, 1)
    reads = [
        read(second.partitions[0], size=10),
        read(second.partitions[1]),
        read(second.partitions[2], high_watermark=6),
    ]
    assert [r.fetch.topic for r in second.to_answer(reads)] == ["a", "c"]


def test_a_log_start_that_moved_is_news() -> None:
    sessions = cache()
    first = begin(sessions, 0, 0, ask("a"), ask("b"))
    answered(first)
    for epoch, expected in ((1, ["a"]), (2, [])):
        again = begin(sessions, first.session_id, epoch)
        a, b = again.partitions
        told = again.to_answer([read(a, log_start_offset=3), read(b)])
        assert [r.fetch.topic for r in told] == expected


def test_after_an_error_the_partition_is_named_again() -> None:
    sessions = cache()
    first = begin(sessions, 0, 0, ask("a"))
    first.to_answer([read(first.partitions[0], high_watermark=-1, error=6)])
    second = begin(sessions, first.session_id, 1)
    assert answered(second) == ["a"]
    assert answered(begin(sessions, first.session_id, 2)) == []


def test_partitions_that_brought_data_go_to_the_end() -> None:
    sessions = cache()
    first = begin(sessions, 0, 0, ask("a"), ask("b"), ask("c"))
    answered(first, a=10)
    second = begin(sessions, first.session_id, 1)
    assert [p.topic for p in second.partitions] == ["b", "c", "a"]


def test_only_a_partition_with_more_to_read_is_looked_at_again() -> None:
    sessions = cache()
    first = begin(sessions, 0, 0, ask("a"), ask("b"))
    for epoch, at_end, expected in ((1, "b", ["a"]), (2, "ab", [])):
        reads = [read(p, size=10) for p in first.partitions]
        for each in reads:
            each.at_end = each.fetch.topic in at_end
        first.to_answer(reads)
        first.end()
        first = begin(sessions, first.session_id, epoch)
        assert [p.topic for p in first.partitions] == expected


def test_partitions_are_changed_added_and_forgotten() -> None:
    sessions = cache()
    first = begin(sessions, 0, 0, ask("a"), ask("b"))
    answered(first)
    second = begin(
        sessions, first.session_id, 1, ask("a", offset=7), ask("c"), forgotten=(("b", 0),)
    )
    assert [(p.topic, p.offset) for p in second.partitions] == [("a", 7), ("c", 0)]
    assert answered(second) == ["c"]


def test_forgetting_the_last_partition_ends_the_session() -> None:
    sessions = cache()
    first = begin(sessions, 0, 0, ask("a"))
    last = begin(sessions, first.session_id, 1, forgotten=(("a", 0),))
    assert last.session_id == 0
    assert len(sessions) == 0


@pytest.mark.parametrize("session_id", [1, 12345, 2**31 - 1])
def test_an_invented_session_is_refused(session_id: int) -> None:
    with pytest.raises(ApiError) as caught:
        begin(cache(), session_id, 1, ask("a"))
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 5, EPOCH_MAX])
def test_a_wrong_epoch_is_refused(epoch: int) -> None:
    sessions = cache()
    first = begin(sessions, 0, 0, ask("a"))
    with pytest.raises(ApiError) as caught:
        begin(sessions, first.session_id, epoch)
    assert caught.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_does_not_change_how_topics_are_named() -> None:
    sessions = cache()
    first = begin(sessions, 0, 0, ask("a"))
    with pytest.raises(ApiError) as caught:
        begin(sessions, first.session_id, 1, with_ids=True)
    assert caught.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_fetch_ends_the_session_it_names() -> None:
    sessions = cache()
    first = begin(sessions, 0, 0, ask("a"))
    again = begin(sessions, first.session_id, 0, ask("a"))
    assert again.session_id not in (0, first.session_id)
    begin(sessions, again.session_id, -1, ask("a"))
    assert len(sessions) == 0


def test_the_cache_keeps_its_bound() -> None:
    sessions = cache(slots=1000)
    ids = [begin(sessions, 0, 0, ask("a"), now_ms=i).session_id for i in range(10_000)]
    assert len(sessions) == 1000
    assert all(ids[:1000])
    assert not any(ids[1000:])
    assert begin(sessions, ids[0], 1, now_ms=10_000).session_id == ids[0]


def test_sessions_share_a_bound_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "PARTITIONS_MAX", 10)
    sessions = cache()
    four = [[ask(topic, n) for n in range(4)] for topic in "abcd"]
    old = begin(sessions, 0, 0, *four[0], now_ms=0).session_id
    used = begin(sessions, 0, 0, *four[1], now_ms=1).session_id
    assert old
    assert used
    assert not begin(sessions, 0, 0, *four[2], now_ms=2).has_session  # served without one
    begin(sessions, used, 1, now_ms=EVICTION_MS)
    assert begin(sessions, 0, 0, *four[2], now_ms=EVICTION_MS + 1).has_session
    with pytest.raises(ApiError) as refused:  # the old one has gone
        begin(sessions, old, 1, now_ms=EVICTION_MS + 2)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    with pytest.raises(ApiError) as refused:
        begin(sessions, used, 2, *four[3], now_ms=EVICTION_MS + 2)  # it would grow to twelve
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(sessions, 0, 0, *four[3], now_ms=EVICTION_MS + 2).has_session  # its place is free


def test_what_a_session_forgets_and_what_ends_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "PARTITIONS_MAX", 4)
    sessions = cache()
    ends = begin(sessions, 0, 0, ask("a", 0), ask("a", 1)).session_id
    stays = begin(sessions, 0, 0, ask("b", 0), ask("b", 1)).session_id
    assert not begin(sessions, 0, 0, ask("c")).has_session
    begin(sessions, stays, 1, forgotten=(("b", 1),))
    assert begin(sessions, 0, 0, ask("c")).has_session
    begin(sessions, ends, FINAL_EPOCH)
    begin(sessions, stays, 2, ask("b", 2), ask("b", 3))
    assert not begin(sessions, 0, 0, ask("d")).has_session


def test_a_session_unused_for_long_gives_its_slot_away() -> None:
    sessions = cache(slots=2)
    old = begin(sessions, 0, 0, ask("a"), now_ms=0).session_id
    used = begin(sessions, 0, 0, ask("b"), now_ms=1).session_id
    begin(sessions, used, 1, now_ms=EVICTION_MS)
    assert begin(sessions, 0, 0, ask("c"), now_ms=EVICTION_MS + 1).session_id > 0
    with pytest.raises(ApiError):
        begin(sessions, old, 1, now_ms=EVICTION_MS + 2)
    assert begin(sessions, used, 2, now_ms=EVICTION_MS + 2).session_id == used


def test_the_session_unused_for_longest_goes_whenever_it_was_made() -> None:
    sessions = cache(slots=2)
    used = begin(sessions, 0, 0, ask("a"), now_ms=0).session_id
    unused = begin(sessions, 0, 0, ask("b"), now_ms=1).session_id
    begin(sessions, used, 1, now_ms=EVICTION_MS)
    assert begin(sessions, 0, 0, ask("c"), now_ms=EVICTION_MS + 2).session_id > 0
    with pytest.raises(ApiError):
        begin(sessions, unused, 1, now_ms=EVICTION_MS + 3)


def test_a_session_id_is_given_once() -> None:
    class Rng(SeededRng):
        """Throws the same number twice."""

        thrown = 0

        def random(self) -> float:
            self.thrown += 1
            return 0.25 if self.thrown < 3 else 0.5

    sessions = FetchSessionCache(slots_max=10, rng=Rng(1))
    first, second = (begin(sessions, 0, 0, ask(topic)).session_id for topic in "ab")
    assert first != second
    assert len(sessions) == 2


class Watched:
    """As much of a partition as a watch needs."""

    def __init__(self) -> None:
        self.watches: dict[object, None] = {}
        self.log_watches: dict[object, None] = {}
        self.deleted = False


def test_the_second_of_two_fetches_of_a_session_looks_for_itself() -> None:
    sessions = cache()
    session_id = begin(sessions, 0, 0, ask("a"), ask("b")).session_id
    one = begin(sessions, session_id, 1)
    other = begin(sessions, session_id, 2)
    assert other.watch is not one.watch
    assert [p.topic for p in other.partitions] == ["a", "b"]
    partition = Watched()
    one.watch.add(partition)  # type: ignore[arg-type]
    other.end()
    assert list(partition.watches) == [one.watch]


def test_a_session_that_ends_under_a_fetch_watches_until_that_is_answered() -> None:
    sessions = cache()
    first = begin(sessions, 0, 0, ask("a"))
    partition = Watched()
    first.watch.add(partition)  # type: ignore[arg-type]
    begin(sessions, first.session_id, -1, ask("a"))
    assert len(sessions) == 0
    assert list(partition.watches) == [first.watch]
    first.end()
    assert not partition.watches


def test_epochs_wrap_to_one() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(EPOCH_MAX) == 1
    assert next_epoch(-1) == -1


def begin_wide(
    sessions: FetchSessionCache, asked: list[FetchPartition], session_id: int = 0, epoch: int = 0
) -> Steps[FetchContext]:
    return sessions.begin(
        session_id=session_id,
        session_epoch=epoch,
        asked=asked,
        forgotten=(),
        with_ids=False,
        now_ms=0,
    )


def test_a_session_of_very_many_partitions_is_made_in_steps() -> None:
    sessions = cache()
    asked = [ask("t", index) for index in range(4 * SLICE_PARTITIONS)]
    asked[-1] = ask("t", 0, offset=7)  # named twice: the last one counts
    steps, taken = begin_wide(sessions, asked), 0
    for partition in asked:
        partition.order = -1
    for _ in range(3):
        next(steps)
        turned = sum(partition.order >= 0 for partition in asked)
        assert 0 < turned - taken <= SLICE_PARTITIONS
        taken = turned
        assert len(sessions) == 0
    session_id = at_once(steps).session_id
    assert len(sessions) == 1
    again = begin(sessions, session_id, 1, ask("new"))
    assert again.count == len(asked)
    assert [p.order for p in asked] == list(range(len(asked)))


def test_a_slot_that_is_taken_while_a_session_is_made_stays_taken() -> None:
    sessions = cache(slots=1)
    steps = begin_wide(sessions, [ask("t", index) for index in range(2 * SLICE_PARTITIONS)])
    next(steps)
    other = begin(sessions, 0, 0, ask("a"))
    late = at_once(steps)
    assert (other.session_id > 0, late.session_id, len(sessions)) == (True, 0, 1)
    assert late.count == 2 * SLICE_PARTITIONS


def test_very_many_partitions_of_a_session_change_in_steps() -> None:
    sessions, wide = cache(), range(3 * SLICE_PARTITIONS)
    first = at_once(begin_wide(sessions, [ask("t", index) for index in wide]))
    first.end()
    asked = [ask("t", index, offset=5) for index in wide]
    for partition in asked:
        partition.order = -1
    steps, taken = begin_wide(sessions, asked, first.session_id, 1), 0
    for _ in range(3):
        next(steps)
        turned = sum(partition.order >= 0 for partition in asked)
        assert turned - taken == SLICE_PARTITIONS
        taken = turned
    assert list(at_once(steps).partitions) == asked


def test_a_session_that_ends_while_it_changes_is_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = range(2 * SLICE_PARTITIONS)
    monkeypatch.setattr(fetch_session, "PARTITIONS_MAX", len(wide))
    sessions = cache()
    first = begin(sessions, 0, 0, ask("t"))
    first.end()
    steps = begin_wide(sessions, [ask("t", index) for index in wide], first.session_id, 1)
    next(steps)
    begin(sessions, first.session_id, FINAL_EPOCH)
    with pytest.raises(ApiError) as refused:
        at_once(steps)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    whole = begin(sessions, 0, 0, *(ask("t", index) for index in wide))
    assert whole.session_id > 0, "its partitions count no more"
