"""Hostile and broken messages: each is refused, or served, without memory taken from a claim."""

import tracemalloc
from struct import pack

import pytest

from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message, parse, request, response
from kafka_protocol.wire.framing import read_request_header
from kafka_protocol.wire.primitives import encode_uvarint, skip_tags

METADATA = request(ApiKey.METADATA)
HUGE = b"\xff\xff\xff\xff\x07"  # 2^31 - 1 as a varint


def test_surplus_bytes_are_left_to_the_caller() -> None:
    body = METADATA.encode(METADATA.cls(topics=None), 12)
    value, end = METADATA.decode(body + b"\x01\x02\x03", 12)
    assert (value.topics, end) == (None, len(body))


@pytest.mark.parametrize("size", range(14))
def test_a_header_that_is_cut_is_malformed(size: int) -> None:
    whole = pack(">hhih", ApiKey.METADATA, 12, 1, 3) + b"abc\0"
    assert read_request_header(whole).body_offset == 14
    with pytest.raises(MalformedMessageError):
        read_request_header(whole[:size])


def test_a_null_client_id_is_none() -> None:
    header = read_request_header(pack(">hhih", ApiKey.METADATA, 1, 7, -1))
    assert header == (ApiKey.METADATA, 1, 7, None, 10)


@pytest.mark.parametrize("length", [-2, -32_768])
def test_any_negative_length_of_a_client_id_is_null(length: int) -> None:
    header = read_request_header(pack(">hhih", ApiKey.METADATA, 1, 7, length))
    assert header == (ApiKey.METADATA, 1, 7, None, 10)


def test_bytes_of_a_client_id_that_are_no_utf8_are_replaced() -> None:
    header = read_request_header(pack(">hhih", ApiKey.METADATA, 1, 7, 4) + b"a\xff\xfeb")
    assert header.client_id == "a\ufffd\ufffdb"


@pytest.mark.parametrize("length", [4, 32_767])
def test_a_client_id_longer_than_its_frame_is_malformed(length: int) -> None:
    with pytest.raises(MalformedMessageError):
        read_request_header(pack(">hhih", ApiKey.METADATA, 1, 7, length) + b"abc")


def test_an_api_versions_request_of_the_future_needs_no_valid_tail() -> None:
    frame = pack(">hhih", ApiKey.API_VERSIONS, 99, 7, 1) + b"c" + b"\xff" * 9
    assert read_request_header(frame)[:4] == (ApiKey.API_VERSIONS, 99, 7, "c")


@pytest.mark.parametrize(
    "body", [pack(">i", 0x7FFFFFFF), pack(">i", 1000)], ids=["largest", "a thousand"]
)
def test_an_array_count_beyond_the_frame_is_malformed(body: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(MalformedMessageError):
        METADATA.decode(body + bytes(40), 1)
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


def test_a_compact_array_count_beyond_the_frame_is_malformed() -> None:
    with pytest.raises(MalformedMessageError):
        METADATA.decode(HUGE + bytes(40), 12)


def test_a_count_of_fixed_size_elements_beyond_the_frame_is_malformed() -> None:
    schema = parse("- Numbers 0 f- | Values:[]i64")
    with pytest.raises(MalformedMessageError):
        schema.decode(pack(">i", 0x7FFFFFFF) + bytes(64), 0)
    with pytest.raises(MalformedMessageError):
        schema.decode(pack(">i", 9) + bytes(64), 0)
    assert schema.decode(pack(">i", 8) + bytes(64), 0)[0].values == [0] * 8


def test_a_negative_count_is_null_where_null_may_be() -> None:
    assert METADATA.decode(pack(">i", -2), 1)[0].topics is None
    with pytest.raises(MalformedMessageError):
        METADATA.decode(pack(">i", -2), 0)


@pytest.mark.parametrize("negative", [-2, -12, -(2**31) + 1])
def test_a_compact_length_below_zero_is_null_where_null_may_be(negative: int) -> None:
    """Its 32 bits hold length + 1; of -2^31 that is more than there can be, as in Kafka."""
    compact = encode_uvarint((negative + 1) % 2**32)
    assert METADATA.decode(compact + b"\1\0\0", 12)[0].topics is None
    with_name = b"\2" + bytes(16) + compact + b"\0" + b"\1\0\0"
    assert METADATA.decode(with_name, 12)[0].topics[0].name is None
    for version in (8, 9):
        produce = request(ApiKey.PRODUCE)
        body = produce.encode(produce.cls(transactional_id=None), version)
        null = b"\0" if version == 9 else b"\xff\xff"
        assert body.startswith(null)
        wrong = compact if version == 9 else b"\x80\0"
        assert produce.decode(wrong + body[len(null) :], version)[0].transactional_id is None
    with pytest.raises(MalformedMessageError):
        METADATA.decode(b"\2" + compact + bytes(9), 9)  # a topic's name, not nullable yet


def test_a_compact_length_that_is_the_least_number_is_malformed() -> None:
    with pytest.raises(MalformedMessageError):
        METADATA.decode(encode_uvarint(2**31) + b"\1\0\0", 12)


@pytest.mark.parametrize("version", [9, 12])
def test_a_varint_past_five_bytes_is_malformed(version: int) -> None:
    for six in (b"\xff\xff\xff\xff\xff\x01", b"\x81\x80\x80\x80\x80\x00"):  # the second is 1
        with pytest.raises(MalformedMessageError):
            METADATA.decode(six + bytes(20), version)


def test_a_tag_count_past_five_bytes_is_malformed() -> None:
    body = METADATA.encode(METADATA.cls(), 12)
    with pytest.raises(MalformedMessageError):
        METADATA.decode(body[:-1] + b"\x80\x80\x80\x80\x80\x01" + bytes(20), 12)


def test_null_where_null_may_not_be_is_malformed() -> None:
    groups = request(ApiKey.DESCRIBE_GROUPS)
    with pytest.raises(MalformedMessageError):
        groups.decode(pack(">ih", 1, -1) + b"\0", 3)  # a null group id
    with pytest.raises(MalformedMessageError):
        groups.decode(b"\x02\x00\x00\x00", 5)  # the same, compact
    with pytest.raises(MalformedMessageError):
        groups.decode(b"\x00\x00\x00", 5)  # a null list of groups


def test_of_two_equal_tags_the_last_wins() -> None:
    fetch = request(ApiKey.FETCH)
    body = fetch.encode(fetch.cls(), 17)
    first, second = b"\x00\x02\x02A", b"\x00\x02\x02B"
    value, _ = fetch.decode(body[:-1] + b"\x02" + first + second, 17)
    assert value.cluster_id == "B"


def test_a_known_tag_whose_size_is_wrong_is_malformed() -> None:
    fetch = request(ApiKey.FETCH)
    body = fetch.encode(fetch.cls(), 17)
    with pytest.raises(MalformedMessageError):
        fetch.decode(body[:-1] + b"\x01\x00\x03\x02A\x00", 17)


def test_a_hundred_thousand_unknown_tags_are_skipped() -> None:
    body = METADATA.encode(METADATA.cls(), 12)
    tags = b"".join(encode_uvarint(100 + n) + b"\x01x" for n in range(100_000))
    tail = encode_uvarint(100_000) + tags
    value, end = METADATA.decode(body[:-1] + tail, 12)
    assert value == METADATA.cls()
    assert end == len(body) - 1 + len(tail)
    assert skip_tags(memoryview(tail), 0) == len(tail)  # as those of a request's header


def test_honest_counts_that_multiply_meet_the_cap() -> None:
    schema = parse("- Deep 0 f0 | A:[]{B:[]{C:[]i8}}")
    inner = b"\x01\x00"  # an empty list, no tags
    middle = encode_uvarint(60_001) + inner * 60_000 + b"\0"
    body = encode_uvarint(51) + middle * 50 + b"\0"
    tracemalloc.start()
    with pytest.raises(MalformedMessageError, match="elements"):
        schema.decode(body, 0)
    assert tracemalloc.get_traced_memory()[1] < 64_000_000
    tracemalloc.stop()


def test_the_cap_also_counts_plain_numbers_and_tags() -> None:
    numbers = parse("- Numbers 0 f- | Values:[]i8")
    with pytest.raises(MalformedMessageError, match="elements"):
        numbers.decode(pack(">i", 300_000) + bytes(300_000), 0)
    tags = parse("- Tagged 0 f0 | A:[]{B:i8}")
    section = encode_uvarint(100_000) + b"\x01\x00" * 100_000
    with pytest.raises(MalformedMessageError, match="tagged fields"):
        tags.decode(encode_uvarint(4) + (b"\0" + section) * 3 + b"\0", 0)


def test_a_compact_string_holds_no_more_than_its_old_form() -> None:
    groups = request(ApiKey.DESCRIBE_GROUPS)
    longest = groups.encode(groups.cls(groups=["g" * 32_767]), 5)
    assert groups.decode(longest, 5)[0].groups == ["g" * 32_767]
    with pytest.raises(MalformedMessageError):
        groups.decode(groups.encode(groups.cls(groups=["g" * 32_768]), 5), 5)


def test_text_that_is_no_utf8_is_malformed() -> None:
    groups = request(ApiKey.DESCRIBE_GROUPS)
    with pytest.raises(MalformedMessageError):
        groups.decode(pack(">ih", 1, 2) + b"\xc3\x28\x00", 3)


def test_an_unknown_version_is_malformed_to_decode_and_an_error_to_encode() -> None:
    with pytest.raises(MalformedMessageError):
        METADATA.decode(b"", 99)
    with pytest.raises(ValueError, match="no version 99"):
        METADATA.encode(METADATA.cls(), 99)


def test_a_bool_of_any_value_but_zero_is_true() -> None:
    cluster = request(ApiKey.DESCRIBE_CLUSTER)
    assert cluster.decode(b"\x07\x00", 0)[0].include_cluster_authorized_operations is True


def test_a_null_struct_is_any_negative_byte() -> None:
    described = request(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
    body = described.encode(described.cls(), 0)
    assert body[-2:] == b"\xff\0"
    assert described.decode(body[:-2] + b"\x80\0", 0)[0].cursor is None


def test_unknown_names_and_keys_say_so() -> None:
    with pytest.raises(KeyError):
        message("NoSuchRequest")
    with pytest.raises(KeyError):
        message("NoSuchRecord")
    with pytest.raises(ValueError, match="999"):
        response(999)
