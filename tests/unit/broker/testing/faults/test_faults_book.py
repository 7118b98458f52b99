"""What a book of faults does to a request, and how it counts."""

import pytest

from broker.testing.faults.book import FAULTS_MAX, Facts, FaultBook
from broker.testing.faults.naming import Named
from broker.testing.faults.rule import FaultError, RequestFault
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from runtime.rng import seeded

FETCH = Facts(ApiKey.FETCH, 12, "c")


def produce(*topics: str, client_id: str = "c") -> Facts:
    return Facts(ApiKey.PRODUCE, 9, client_id, Named(frozenset((topic, 0) for topic in topics)))


def a_book() -> FaultBook:
    return FaultBook(seeded)


def test_a_hit_is_counted_with_its_facts() -> None:
    book = a_book()
    entry = book.add(RequestFault(api=ApiKey.PRODUCE, delay_ms=5))
    assert book.decide(produce("t"), 17) is not None
    assert book.decide(FETCH, 18) is None
    assert entry.hits == 1
    (hit,) = entry.last
    assert (hit.at_ms, hit.what, hit.version, hit.client_id) == (17, "Produce", 9, "c")


def test_a_count_ends_a_fault() -> None:
    book = a_book()
    entry = book.add(RequestFault(delay_ms=5, count=2))
    assert [book.decide(FETCH, 1) is not None for _ in range(4)] == [True, True, False, False]
    assert (entry.hits, entry.is_over) == (2, True)
    assert book.in_force(ApiKey.FETCH) == []


@pytest.mark.parametrize(
    ("fault", "is_hit"),
    [
        (RequestFault(delay_ms=1, topic="a"), True),
        (RequestFault(delay_ms=1, topic="b"), True),
        (RequestFault(delay_ms=1, topic="c"), False),
        (RequestFault(delay_ms=1, topic="a", partition=0), True),
        (RequestFault(delay_ms=1, topic="a", partition=1), False),
        (RequestFault(delay_ms=1, client_id="c"), True),
        (RequestFault(delay_ms=1, client_id="d"), False),
        (RequestFault(delay_ms=1, client_id="d", topic="a"), False),
    ],
)
def test_only_what_matches_is_hit(fault: RequestFault, is_hit: bool) -> None:
    book = a_book()
    entry = book.add(fault)
    assert (book.decide(produce("a", "b"), 1) is not None) is is_hit
    assert entry.hits == is_hit


def test_a_request_for_a_topic_as_a_whole_names_each_partition_of_it() -> None:
    whole, one = Named(frozenset({("a", None)})), Named(frozenset({("a", 3)}))
    assert [named.includes("a", 3) for named in (whole, one)] == [True, True]
    assert [named.includes("a", 4) for named in (whole, one)] == [True, False]
    assert [named.includes("a", None) for named in (whole, one)] == [True, True]
    assert [named.includes("b", 3) for named in (whole, one)] == [False, False]


def test_rng_are_thrown_for_requests_that_match_and_for_no_others() -> None:
    """So the same seed hits the same requests, whatever else clients do meanwhile."""
    fault = RequestFault(delay_ms=1, topic="a", probability=0.5, seed=3)
    alone, disturbed = a_book(), a_book()
    for book in (alone, disturbed):
        book.add(fault)
    wanted = [alone.decide(produce("a"), 1) is not None for _ in range(40)]
    found = []
    for _ in range(40):
        assert disturbed.decide(produce("b"), 1) is None
        found.append(disturbed.decide(produce("a"), 1) is not None)
    assert set(wanted) == {True, False}
    assert found == wanted


def test_a_request_for_all_topics_names_each_of_them() -> None:
    book = a_book()
    book.add(RequestFault(delay_ms=1, topic="any", partition=7))
    assert book.decide(Facts(ApiKey.METADATA, 1, "", Named(names_all=True)), 1) is not None


def test_delays_add_up_and_errors_keep_their_order() -> None:
    book = a_book()
    first = book.add(RequestFault(api=0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, delay_ms=3))
    second = book.add(RequestFault(api=0, error=ErrorCode.REQUEST_TIMED_OUT, delay_ms=4))
    decision = book.decide(produce("t"), 1)
    assert decision is not None
    assert decision.delays == decision.errors == (first, second)
    assert decision.cut is None


def test_a_fault_that_was_removed_hits_nothing_and_is_unknown() -> None:
    book = a_book()
    entry, other = book.add(RequestFault(delay_ms=1)), book.add(RequestFault(delay_ms=1))
    assert book.remove(entry.id) is entry
    assert (entry.is_removed, other.is_removed) == (True, False)
    assert book.decide(FETCH, 1) is not None
    assert (entry.hits, other.hits) == (0, 1)
    with pytest.raises(FaultError, match="no such fault"):
        book.remove(entry.id)
    assert book.clear() == [other]
    assert other.is_removed
    assert book.decide(FETCH, 1) is None


def test_numbers_are_never_used_twice() -> None:
    book = a_book()
    first = book.remove(book.add(RequestFault(delay_ms=1)).id)
    assert book.add(RequestFault(delay_ms=1)).id > first.id


def test_a_book_is_full_at_some_point() -> None:
    book = a_book()
    for _ in range(FAULTS_MAX):
        book.add(RequestFault(delay_ms=1))
    with pytest.raises(FaultError, match="remove some"):
        book.add(RequestFault(delay_ms=1))
