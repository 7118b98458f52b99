"""The validate of killed controllers notices what it is there for."""

import pytest

from metadata_topic.image.image import EMPTY_IMAGE
from tests.support.quorum.committed import Copy, differences
from tests.support.quorum.history import History, Outcome, TopicState

ID, OTHER_ID = bytes(15) + b"\x01", bytes(15) + b"\x02"
TOPIC = TopicState(ID, 3, (("retention.ms", "1000"),))


def created(outcome: Outcome = Outcome.ACKNOWLEDGED) -> History:
    history = History()
    after = TOPIC if outcome is Outcome.ACKNOWLEDGED else TopicState(bytes(16), 3, TOPIC.configs)
    history.subject("a").note("create", outcome, after, "")
    return history


@pytest.mark.parametrize(
    "found",
    [
        None,
        TopicState(OTHER_ID, 3, TOPIC.configs),
        TopicState(ID, 4, TOPIC.configs),
        TopicState(ID, 3),
        TOPIC.with_config("retention.ms", "2000"),
    ],
    ids=["lost", "another id", "more partitions", "its config lost", "another config"],
)
def test_what_was_acknowledged_must_be_there_as_it_was(found: TopicState | None) -> None:
    history = created()
    assert history.contradictions({"a": TOPIC}, "1") == []
    assert len(history.contradictions({} if found is None else {"a": found}, "1")) == 1


def test_what_was_refused_must_not_be_there() -> None:
    history = created(Outcome.REFUSED)
    assert history.contradictions({}, "1") == []
    assert len(history.contradictions({"a": TOPIC}, "1")) == 1


def test_what_was_deleted_must_be_gone() -> None:
    history = created()
    history.subject("a").note("delete", Outcome.ACKNOWLEDGED, None, "")
    assert history.contradictions({}, "1") == []
    assert len(history.contradictions({"a": TOPIC}, "1")) == 1


def test_a_topic_that_nobody_asked_for_is_wrong() -> None:
    assert len(created().contradictions({"a": TOPIC, "b": TOPIC}, "1")) == 1


def test_after_an_unknown_answer_both_may_be_and_nothing_else() -> None:
    history = created(Outcome.UNKNOWN)
    assert history.contradictions({}, "1") == []
    assert history.contradictions({"a": TOPIC}, "1") == []
    assert len(history.contradictions({"a": TopicState(ID, 1, TOPIC.configs)}, "1")) == 1

    history = created()
    changed = TOPIC.with_config("retention.ms", "2000")
    history.subject("a").note("configure", Outcome.UNKNOWN, changed, "NO_ANSWER")
    assert history.contradictions({"a": TOPIC}, "1") == []
    assert history.contradictions({"a": changed}, "1") == []
    assert len(history.contradictions({}, "1")) == 1
    with pytest.raises(AssertionError, match="its state is unknown"):
        history.subject("a").note("delete", Outcome.ACKNOWLEDGED, None, "")


def copy(node_id: int, *, image: object = EMPTY_IMAGE, **batches: bytes) -> Copy:
    numbered = {int(base[1:]): data for base, data in batches.items()}
    return Copy(node_id, numbered, 20, image, None)  # type: ignore[arg-type]


def test_copies_that_differ_are_wrong() -> None:
    assert differences([copy(1, _0=b"a", _5=b"b"), copy(2, _0=b"a", _5=b"b")]) == []
    assert differences([copy(1, _0=b"a", _5=b"b"), copy(2, _5=b"b")]) == [], "a snapshot has it"
    for other in (copy(2, _0=b"a", _5=b"c"), copy(2, _0=b"a"), copy(2, _0=b"a", _5=b"b", _9=b"c")):
        assert len(differences([copy(1, _0=b"a", _5=b"b"), other])) == 1
    assert len(differences([copy(1, _0=b"a"), copy(2, _0=b"a", image=object())])) == 1
