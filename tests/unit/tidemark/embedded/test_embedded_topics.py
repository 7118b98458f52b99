"""Topics as a test writes them, and what is refused before anything starts."""

from typing import Any

import pytest

import tidemark
from tidemark.embedded.guarded import Guarded
from tidemark.embedded.topics import NewTopic, topics_of

SETTINGS = {"remote.storage.enable": True, "retention.ms": -1, "x": "y"}
TEXTS = {"remote.storage.enable": "true", "retention.ms": "-1", "x": "y"}


@pytest.mark.parametrize(
    ("topics", "found"),
    [
        ((), ()),
        (["a", "b"], (NewTopic("a"), NewTopic("b"))),
        ({"a": 3}, (NewTopic("a", 3),)),
        (["a", {"b": 3, "c": 2}], (NewTopic("a"), NewTopic("b", 3), NewTopic("c", 2))),
        ([{"name": "a", "partitions": 3}], (NewTopic("a", 3),)),
        ([{"name": "a", "configs": SETTINGS}], (NewTopic("a", 1, TEXTS),)),
        ([{"a": {"partitions": 2, "configs": SETTINGS}}], (NewTopic("a", 2, TEXTS),)),
        ({"a": {"configs": {}}, "b": 2}, (NewTopic("a"), NewTopic("b", 2))),
        ({"name": "a"}, (NewTopic("a"),)),
        ([{"name": 2}], (NewTopic("name", 2),)),
        (iter(["a"]), (NewTopic("a"),)),
    ],
)
def test_topics(topics: Any, found: tuple[NewTopic, ...]) -> None:
    assert topics_of(topics) == found


@pytest.mark.parametrize(
    ("topics", "words"),
    [
        ("orders", r"list of names, or \{name: partitions\}"),
        (7, "must be a list of names"),
        ([7], r"topics\[0\]=7: a topic is \"orders\", \{\"orders\": 3\} or"),
        (["a", {"name": "b", "partition": 3}], r"topics\[1\]: partition: no such field; there are"),
        ([{"a": "3"}], r"topics\[0\]: a: partitions='3': must be a whole number from 1 on"),
        ({"a": 0}, "topics: a: partitions=0"),
        ({"a": True}, "topics: a: partitions=True"),
        ([{"name": "a", "configs": ["x"]}], r"a: configs=\['x'\]: must be \{name: value\}"),
        ([{"name": "a", "configs": {"x": None}}], r"configs: 'x': None: must be"),
        (["a b"], r"topics\[0\]: 'a b' is no name of a topic"),
        ([""], "is no name"),
        (["x" * 250], "is no name"),
        ([".."], "is no name"),
        (["a", {"a": 2}], "topics: a is there twice"),
    ],
)
def test_what_is_not_understood_is_said_before_anything_starts(
    topics: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Guarded, "__init__")  # nothing of a broker is made
    with pytest.raises((TypeError, ValueError), match=words):
        tidemark.Broker(topics=topics)
