"""A group lies where every other broker and tool looks for it."""

import pytest

from broker.coordinator.service import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("console-consumer-12345", 158455506),
        ("polygenelubricants", -(2**31)),
        ("gruppe-ä", 673522898),
        ("😀", 1772899),
    ],
)
def test_the_hash_is_that_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value


@pytest.mark.parametrize("count", [1, 3, 50])
@pytest.mark.parametrize("group", ["", "a", "group", "polygenelubricants", "ünï", "😀"])
def test_a_partition_is_one_of_the_topic(group: str, count: int) -> None:
    assert 0 <= partition_of(group, count) < count


def test_the_smallest_hash_is_taken_for_zero() -> None:
    assert partition_of("polygenelubricants", 50) == 0
