"""Faults against a naive twin: what fails and what is served, and which requests are hits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.testing.faults.book import Facts, FaultBook
from broker.testing.faults.errors import ErrorAnswers
from broker.testing.faults.naming import Named, named_by
from broker.testing.faults.rule import Cut, RequestFault
from broker.testing.faults.shapes import shape_of
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from runtime.rng import seeded

TOPICS = "abcd"
IDS = {name.encode() * 16: name for name in TOPICS}
CODES = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE)

Slots = dict[tuple[str, int], int]

slots_of_topics = st.dictionaries(
    st.sampled_from(TOPICS),
    st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True),
    max_size=4,
)
places = st.tuples(st.sampled_from(TOPICS), st.none() | st.integers(0, 3))


def request_of(key: ApiKey, topics: dict[str, list[int]]) -> Any:
    """A request about these partitions; names and ids are set, a version writes either."""
    level = shape_of(key).levels[0]
    assert level.inner is not None
    cls = codec.request(key).cls
    topic_cls = getattr(cls, camel(level.asked))
    (index,) = level.inner.keys
    elements = []
    for name, partitions in topics.items():
        keys = {one: name.encode() * 16 if one == "topic_id" else name for one in level.keys}
        if index:
            part_cls = getattr(topic_cls, camel(level.inner.asked))
            inner = [part_cls(**{index: one}) for one in partitions]
        else:
            inner = list(partitions)
        elements.append(topic_cls(**keys, **{level.inner.asked: inner}))
    return cls(**{level.asked: elements})


def camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def slots(key: ApiKey, value: Any, *, is_answer: bool) -> Slots:
    """Partition -> error code of a request or an answer; each at most once."""
    level = shape_of(key).levels[0]
    assert level.inner is not None
    (pair,) = level.inner.keys.items()
    outer, inner = (
        (level.answered, level.inner.answered) if is_answer else (level.asked, level.inner.asked)
    )
    found: Slots = {}
    for topic in getattr(value, outer):
        topic_id = getattr(topic, "topic_id", bytes(16))
        name = IDS.get(topic_id) or getattr(topic, "name", "") or topic.topic
        for one in getattr(topic, inner):
            index = getattr(one, pair[is_answer]) if is_answer or pair[0] else one
            assert (name, index) not in found
            found[name, index] = one.error_code if is_answer else 0
    return found


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (ApiKey.PRODUCE, 9),
        (ApiKey.PRODUCE, 13),
        (ApiKey.FETCH, 11),
        (ApiKey.FETCH, 18),
        (ApiKey.LIST_OFFSETS, 7),
        (ApiKey.DELETE_RECORDS, 2),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 3),
        (ApiKey.OFFSET_COMMIT, 8),
        (ApiKey.OFFSET_FETCH, 5),
        (ApiKey.OFFSET_DELETE, 0),
    ],
)
@given(topics=slots_of_topics, failing=st.lists(places, min_size=1, max_size=4))
def test_each_slot_fails_or_is_served_and_the_first_error_counts(
    key: ApiKey, version: int, topics: dict[str, list[int]], failing: list[tuple[str, int | None]]
) -> None:
    # As it comes over the wire: a version has names or ids.
    encoded = codec.request(key).encode(request_of(key, topics), version)
    request, _ = codec.request(key).decode(encoded, version, 0)
    book = FaultBook(seeded)
    for at, (topic, partition) in enumerate(failing):
        code = CODES[at % len(CODES)]
        book.add(RequestFault(api=key, topic=topic, partition=partition, error=code))
    expected: Slots = {}
    for name, partitions in topics.items():
        for index in partitions:
            codes = [
                int(CODES[at % len(CODES)])
                for at, (topic, partition) in enumerate(failing)
                if topic == name and partition in (None, index)
            ]
            expected[name, index] = codes[0] if codes else 0

    named = named_by(key, version, request, IDS.get)
    decision = book.decide(Facts(key, version, "", named), 1)
    if not any(expected.values()):
        asks_for_all = shape_of(key).absent_is_all and not topics
        assert decision is None or asks_for_all
        return
    assert decision is not None
    answers = ErrorAnswers(key, version, IDS.get)
    split = answers.split(request, decision.errors)
    failed = slots(key, split.answer, is_answer=True)
    assert failed == {slot: code for slot, code in expected.items() if code}
    rest = {} if split.rest is None else slots(key, split.rest, is_answer=False)
    assert rest == {slot: code for slot, code in expected.items() if not code}
    codec.response(key).encode(split.answer, version)
    assert codec.request(key).encode(request, version) == encoded, "the request is as it was"


faults = st.builds(
    RequestFault,
    api=st.sampled_from([None, ApiKey.PRODUCE, ApiKey.FETCH]),
    topic=st.none() | st.sampled_from("ab"),
    client_id=st.none() | st.just("x"),
    delay_ms=st.integers(0, 3),
    cut=st.sampled_from([None, None, *Cut]),
    count=st.none() | st.integers(1, 3),
    probability=st.sampled_from([1.0, 1.0, 0.5]),
    seed=st.integers(0, 5),
)
requests = st.tuples(
    st.sampled_from([ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.HEARTBEAT]),
    st.sampled_from("xy"),
    st.sets(st.sampled_from("ab")),
)


@given(
    added=st.lists(faults, max_size=4),
    asked=st.lists(requests | st.integers(0, 3), max_size=25),
)
def test_hits_are_those_of_a_list_that_is_walked(
    added: list[RequestFault], asked: list[Any]
) -> None:
    """A number among the requests takes that fault away."""
    book = FaultBook(seeded)
    entries = [book.add(fault) for fault in added]
    rng = [seeded(fault.seed) for fault in added]
    hits, gone = [0] * len(added), set()
    for request in asked:
        if isinstance(request, int):
            if request < len(added) and request not in gone:
                gone.add(request)
                book.remove(entries[request].id)
            continue
        key, client_id, topics = request
        delay_ms, cut, is_hit = 0, None, False
        for at, fault in enumerate(added):
            is_meant = (
                at not in gone
                and (fault.count is None or hits[at] < fault.count)
                and fault.api in (None, key)
                and fault.client_id in (None, client_id)
                and (fault.topic is None or fault.topic in topics)
            )
            if not is_meant or (fault.probability < 1 and rng[at]() >= fault.probability):
                continue
            hits[at] += 1
            is_hit, delay_ms = True, delay_ms + fault.delay_ms
            if fault.cut is not None:
                cut = entries[at]
                break
        named = Named(frozenset((topic, 0) for topic in topics))
        decision = book.decide(Facts(key, 1, client_id, named), 1)
        assert (decision is not None) is is_hit
        if decision is not None:
            waits_ms = sum(entry.fault.delay_ms for entry in decision.delays)
            assert (waits_ms, decision.cut) == (delay_ms, cut)
    assert [entry.hits for entry in entries] == hits
