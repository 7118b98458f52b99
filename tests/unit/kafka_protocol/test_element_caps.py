"""Each API takes as many elements as its largest sensible request has."""

import tracemalloc

import pytest

from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey, schemas_of
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.primitives import encode_uvarint
from kafka_protocol.wire.schema import CAPS, ELEMENTS_MAX, ArrayType, StructType


def has_arrays(struct: StructType) -> bool:
    return any(
        isinstance(field.type, ArrayType)
        or (isinstance(field.type, StructType) and has_arrays(field.type))
        for field in struct.fields
    )


def cap_of(api: ApiKey) -> str:
    """The word behind the flexible version in the head of the request's schema."""
    return "".join(schemas_of(api.name).REQUEST.split("|")[0].split()[5:])


CAP_OF = {api: cap_of(api) for api in ApiKey if cap_of(api)}


def test_an_api_has_a_cap_exactly_if_its_requests_have_arrays() -> None:
    assert set(CAP_OF) == {api for api in ApiKey if has_arrays(request(api).struct)}
    assert all(0 < cap.elements <= ELEMENTS_MAX and cap.reason for cap in CAPS.values())
    assert set(CAP_OF.values()) == set(CAPS)


def groups_asked(count: int) -> bytes:
    return encode_uvarint(count + 1) + b"\x02g" * count + b"\x00\x00"


def test_the_cap_is_inclusive_and_its_error_names_api_count_and_cap() -> None:
    asked = request(ApiKey.DESCRIBE_GROUPS)
    cap = asked.all_elements_max
    assert cap == CAPS["groups"].elements
    assert len(asked.decode(groups_asked(cap), 5)[0].groups) == cap
    with pytest.raises(MalformedMessageError) as refused:
        asked.decode(groups_asked(cap + 1), 5)
    text = str(refused.value)
    assert text == f"DescribeGroupsRequest 5: {cap + 1} elements or more, at most {cap} are taken"


@pytest.mark.parametrize(("topics", "is_taken"), [(20, True), (30, False)])
def test_nested_arrays_share_the_cap(topics: int, is_taken: bool) -> None:
    vote = request(ApiKey.VOTE)
    partition = vote.cls.Topics.Partitions()
    topic = vote.cls.Topics(topic_name="t", partitions=[partition] * 40)
    body = vote.encode(vote.cls(topics=[topic] * topics), 0)
    if is_taken:
        assert len(vote.decode(body, 0)[0].topics) == topics
    else:
        with pytest.raises(MalformedMessageError, match=r"VoteRequest 0: 10\d\d elements"):
            vote.decode(body, 0)


def one_too_many(api: ApiKey) -> bytes:
    """The newest request of this API whose first list has an element more than may be."""
    asked = request(api)
    field = next(
        field
        for field in asked.struct.fields
        if isinstance(field.type, ArrayType)
        and asked.max_version in field.versions
        and asked.max_version not in field.tagged
    )
    assert isinstance(field.type, ArrayType)
    kind = field.type.element
    element = {"str": "", "uuid": bytes(16)}.get(kind, 0) if isinstance(kind, str) else None
    if isinstance(kind, StructType):
        element = getattr(asked.cls, kind.class_name)()
    items = [element] * (asked.all_elements_max + 1)
    return asked.encode(asked.cls(**{field.attribute: items}), asked.max_version)


ONE_OF_EACH = {cap: api for api, cap in CAP_OF.items()}


@pytest.mark.parametrize("api", ONE_OF_EACH.values(), ids=lambda api: api.name)
def test_one_element_too_many_is_refused_before_any_is_made(api: ApiKey) -> None:
    body, asked = one_too_many(api), request(api)
    with pytest.raises(MalformedMessageError, match="elements or more, at most"):
        asked.decode(body, asked.max_version)  # compiles it
    tracemalloc.start()
    with pytest.raises(MalformedMessageError):
        asked.decode(body, asked.max_version)
    assert tracemalloc.get_traced_memory()[1] < 1 << 16
    tracemalloc.stop()


def test_tagged_fields_have_a_cap_of_their_own() -> None:
    vote = request(ApiKey.VOTE)
    body = vote.encode(vote.cls(), 0)
    tags = encode_uvarint(100_000) + b"\x63\x00" * 100_000  # more than elements, all skipped
    assert vote.decode(body[:-1] + tags, 0)[0].topics == []
    tags = encode_uvarint(ELEMENTS_MAX + 1) + b"\x63\x00" * (ELEMENTS_MAX + 1)
    with pytest.raises(MalformedMessageError, match="250001 tagged fields"):
        vote.decode(body[:-1] + tags, 0)


def test_answers_may_be_as_long_as_any() -> None:
    answer = response(ApiKey.VOTE)
    topic = answer.cls.Topics(topic_name="t")
    many = answer.encode(answer.cls(topics=[topic] * 2_000), 0)
    assert len(answer.decode(many, 0)[0].topics) == 2_000
