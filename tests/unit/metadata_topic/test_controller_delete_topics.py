import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from metadata_topic.controller.topic_deletion import delete_topics
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from tests.support.samples.metadata import apply, cluster_of

A, B = b"a" * 16, b"b" * 16


@pytest.fixture
def image() -> MetadataImage:
    return apply(
        cluster_of(1),
        [
            make("TopicRecord", name="a", topic_id=A),
            make("TopicRecord", name="b", topic_id=B),
            make("ConfigRecord", resource_type=2, resource_name="a", name="k", value="v"),
        ],
    )


def test_a_topic_goes_by_name_with_its_configs(image: MetadataImage) -> None:
    result = delete_topics(image, [("a", ZERO_UUID)])
    assert (result.response[0].name, result.response[0].topic_id) == ("a", A)
    after = apply(image, result.records)
    assert set(after.topics_by_name) == {"b"}
    assert set(after.topics_by_id) == {B}
    assert after.configs == {}
    assert set(image.topics_by_name) == {"a", "b"}


def test_a_topic_goes_by_id_and_its_name_is_told(image: MetadataImage) -> None:
    result = delete_topics(image, [(None, B)])
    assert result.response[0].name == "b"
    assert result.response[0].error is None


@pytest.mark.parametrize(
    ("name", "topic_id", "code"),
    [
        ("c", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, b"c" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ZERO_UUID, ErrorCode.INVALID_REQUEST),
        ("a", A, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_names_no_topic_is_refused(
    image: MetadataImage, name: str | None, topic_id: bytes, code: ErrorCode
) -> None:
    result = delete_topics(image, [(name, topic_id)])
    assert result.records == ()
    assert result.response[0].error is not None
    assert result.response[0].error.code == code


def test_the_same_topic_twice_is_refused(image: MetadataImage) -> None:
    result = delete_topics(image, [("a", ZERO_UUID), ("a", ZERO_UUID), ("b", ZERO_UUID)])
    assert len(result.records) == 1
    assert [t.error is None for t in result.response] == [False, True]


def test_the_same_topic_by_name_and_by_id_is_deleted_once(image: MetadataImage) -> None:
    result = delete_topics(image, [("a", ZERO_UUID), (None, A)])
    assert len(result.records) == 1
    apply(image, result.records)
