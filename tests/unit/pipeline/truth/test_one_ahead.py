"""A question that is asked while the answer before it is worked on."""

import threading
from contextlib import closing

import pytest

from pipeline.truth.metadata_topic import OneAhead


class Echo:
    """Answers with the question, and remembers who asked in which thread; `bad` is an error."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.is_free = threading.Event()
        self.is_free.set()

    def __call__(self, question: str) -> str:
        self.is_free.wait()
        self.asked.append((question, threading.current_thread() is threading.main_thread()))
        if question == "bad":
            raise ConnectionError("no answer")
        return question


def test_what_was_begun_is_not_asked_again() -> None:
    echo = Echo()
    with closing(OneAhead(echo)) as ahead:
        assert ahead.answer("one") == "one"
        ahead.begin("two")
        assert ahead.answer("two") == "two"
        assert ahead.answer("two") == "two"
    assert echo.asked == [("one", True), ("two", False), ("two", True)]


def test_another_question_waits_for_the_one_that_is_on_its_way() -> None:
    echo = Echo()
    with closing(OneAhead(echo)) as ahead:
        echo.is_free.clear()
        ahead.begin("guessed")
        freeing = threading.Timer(0.01, echo.is_free.set)
        freeing.start()
        assert ahead.answer("wanted") == "wanted"
        freeing.join()
    assert echo.asked == [("guessed", False), ("wanted", True)]


def test_an_error_comes_to_who_asks_for_the_answer_and_to_nobody_else() -> None:
    echo = Echo()
    with closing(OneAhead(echo)) as ahead:
        ahead.begin("bad")
        with pytest.raises(ConnectionError):
            ahead.answer("bad")
        ahead.begin("bad")
        assert ahead.answer("good") == "good"
        ahead.begin("bad")
        ahead.drop()
        ahead.begin("bad")
    assert [question for question, _ in echo.asked] == ["bad", "bad", "good", "bad", "bad"]
