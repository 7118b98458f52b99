from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.types import TopicIdPartition
from rsm_plugins.layout import objects as object_layout
from rsm_plugins.layout.objects import DamagedObjectError, Manifest, ObjectFacts, UnsafeNameError
from rsm_plugins.segment import IndexType, RemoteLogSegmentId, SegmentState
from rsm_plugins.testing import INDEX_BYTES, segment

MANIFEST = Manifest(
    replace(segment(), state=SegmentState.COPY_SEGMENT_FINISHED, custom_metadata=b"\x01"),
    ObjectFacts(10, 20),
    ObjectFacts(30, 40),
)


def test_names_are_those_of_the_documented_layout() -> None:
    owner = TopicIdPartition(bytes(range(1, 17)), 3, "orders")
    meta = replace(segment(start_offset=42), id=RemoteLogSegmentId(owner, bytes(range(17, 33))))
    names = object_layout.object_names(meta)
    base = "orders-AQIDBAUGBwgJCgsMDQ4PEA/3/00000000000000000042-ERITFBUWFxgZGhscHR4fIA"
    assert (names.log, names.indexes, names.manifest) == (
        base + ".log",
        base + ".indexes",
        base + ".manifest",
    )
    assert names.directory == "orders-AQIDBAUGBwgJCgsMDQ4PEA/3"


def test_the_longest_topic_fits_a_file_system() -> None:
    names = object_layout.object_names(segment(topic="t" * 249))
    assert max(len(part) for part in names.base.split("/")) == 255


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../x", "a\0", "é", "a b", "t" * 250])
def test_unsafe_topics_are_refused(topic: str) -> None:
    with pytest.raises(UnsafeNameError):
        object_layout.object_names(segment(topic=topic))


@pytest.mark.parametrize(
    "key", ["", "/abs", "../up", "a/../b", "a//b", "./a", "a\\b", "a\0b", "a/"]
)
def test_unsafe_keys_are_refused(key: str) -> None:
    with pytest.raises(UnsafeNameError):
        object_layout.check_key(key)


@given(
    topic=st.text("abcXYZ019._-", min_size=1, max_size=249).filter(lambda t: t not in {".", ".."}),
    topic_id=st.binary(min_size=16, max_size=16),
    partition=st.integers(0, 2**31 - 1),
    start_offset=st.integers(0, 2**63 - 1),
    segment_id=st.binary(min_size=16, max_size=16),
)
def test_a_name_is_read_back(
    topic: str, topic_id: bytes, partition: int, start_offset: int, segment_id: bytes
) -> None:
    owner = TopicIdPartition(topic_id, partition, topic)
    meta = replace(segment(), id=RemoteLogSegmentId(owner, segment_id), start_offset=start_offset)
    names = object_layout.object_names(meta)
    for key in (names.log, names.indexes, names.manifest):
        parsed = object_layout.parse_key(key)
        assert parsed is not None
        assert parsed.base + parsed.suffix == key
        assert parsed.base == names.base
        assert topic.startswith(parsed.topic)
        said = parsed.topic_id, parsed.partition, parsed.start_offset, parsed.segment_id
        assert said == (topic_id, partition, start_offset, segment_id)


BASE = "orders-AQIDBAUGBwgJCgsMDQ4PEA/3/00000000000000000042-ERITFBUWFxgZGhscHR4fIA"


def test_a_folder_of_hex_digits_before_it_is_part_of_the_base_alone() -> None:
    plain, spread = (object_layout.parse_key(key) for key in (BASE + ".log", f"0af3/{BASE}.log"))
    assert plain is not None
    assert spread == replace(plain, base=f"0af3/{BASE}")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "readme.txt",
        BASE,
        BASE + ".log2",
        BASE + ".log/x",
        "/" + BASE + ".log",
        "x/" + BASE + ".log",
        "0123456789/" + BASE + ".log",
        "ab/cd/" + BASE + ".log",
        BASE.replace("/3/", "/03/") + ".log",
        BASE.replace("/3/", "/-1/") + ".log",
        BASE.replace("0042", "42") + ".log",
        BASE.replace("00000000000000000042", "9" * 20) + ".log",
        BASE.replace("/3/", "/9999999999/") + ".log",
        BASE.replace("42-", "٤٢-") + ".log",
        BASE[:-1] + "B.log",  # the same id, written otherwise
        BASE.replace("orders", ".") + ".log",
        BASE + ".log\n",
    ],
)
def test_other_names_are_not_ours(key: str) -> None:
    assert object_layout.parse_key(BASE + ".log") is not None
    assert object_layout.parse_key(key) is None


def test_plain_keys_pass() -> None:
    assert object_layout.check_key("a/b-c_d.e") == "a/b-c_d.e"


def test_the_worked_example() -> None:
    packed = object_layout.pack_indexes({IndexType.OFFSET: b"ab"})
    assert len(packed) == 38
    section = object_layout.read_indexes_header(packed)[IndexType.OFFSET]
    assert (section.position, section.length) == (36, 2)


@given(st.dictionaries(st.sampled_from(IndexType), st.binary(max_size=50)))
def test_indexes_come_back(indexes: dict[IndexType, bytes]) -> None:
    packed = object_layout.pack_indexes(indexes)
    head = packed[: object_layout.INDEXES_HEADER_BYTES_MAX]
    sections = object_layout.read_indexes_header(head)
    assert sections.keys() == indexes.keys()
    for kind, section in sections.items():
        body = packed[section.position : section.position + section.length]
        assert object_layout.checked_section(section, body) == indexes[kind]


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    packed = object_layout.pack_indexes(INDEX_BYTES)
    for place in range(len(packed)):
        flipped = bytearray(packed)
        flipped[place] ^= 1
        with pytest.raises(DamagedObjectError):
            read_all(bytes(flipped))
        with pytest.raises(DamagedObjectError):
            read_all(packed[:place])


def read_all(packed: bytes) -> None:
    for section in object_layout.read_indexes_header(packed).values():
        body = packed[section.position : section.position + section.length]
        object_layout.checked_section(section, body)


def test_a_manifest_comes_back() -> None:
    assert object_layout.parse_manifest(object_layout.dump_manifest(MANIFEST)) == MANIFEST


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"nonsense", b'{"version": 2}', b"\xff"])
def test_a_damaged_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(DamagedObjectError):
        object_layout.parse_manifest(text)
