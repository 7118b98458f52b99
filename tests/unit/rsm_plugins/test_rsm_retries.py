import logging

import pytest

from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.retries import Retries


class Store:
    """Raises these errors, one each, and then answers."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def passing(number: int) -> RetriableRemoteStorageError:
    return RetriableRemoteStorageError(f"failure {number}")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


def test_a_repeated_request_is_one_warning_whatever_its_attempts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    retries = Retries(timeout_s=60, attempts=4, shown=lambda e: f"shown {e}")
    store = Store(passing(1), passing(2), passing(3))
    assert retries.call("copy of a/b", store) == "answer"
    assert store.asked == 4
    [line] = warnings(caplog)
    assert line.startswith("a request was repeated: what=copy of a/b outcome=done repeated=3")
    assert line.endswith("error=shown failure 3")
    caplog.clear()
    assert retries.call("copy of a/c", Store()) == "answer"
    assert warnings(caplog) == []


def test_when_all_attempts_fail_the_last_error_is_raised_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store(*map(passing, range(1, 9)))
    with pytest.raises(RetriableRemoteStorageError, match="failure 3"):
        Retries(timeout_s=60, attempts=3).call("x", store)
    assert store.asked == 3
    [line] = warnings(caplog)
    assert line.startswith("a request was given up after 3 attempts: what=x took_ms=")


def test_of_an_outage_only_the_first_request_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    retries = Retries(timeout_s=60, attempts=2)

    def given_up() -> int:
        caplog.clear()
        with pytest.raises(RetriableRemoteStorageError):
            retries.call("x", Store(passing(1), passing(2)))
        return len(warnings(caplog))

    assert [given_up(), given_up(), given_up()] == [1, 0, 0]
    retries.call("x", Store())
    assert [given_up(), given_up()] == [1, 0]
    with pytest.raises(RemoteResourceNotFoundError):  # the store answers
        retries.call("x", Store(RemoteResourceNotFoundError("missing")))
    assert given_up() == 1


@pytest.mark.parametrize(
    "error",
    [
        RemoteResourceNotFoundError("missing"),
        RemoteStorageError("no right"),
        ValueError("a bad argument"),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
def test_what_does_not_pass_is_raised_at_once(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(error)
    with pytest.raises(type(error)):
        Retries(timeout_s=60, attempts=4).call("x", store)
    assert store.asked == 1
    assert warnings(caplog) == []


def test_an_interruption_is_no_error_that_passes() -> None:
    store = Store(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        Retries(lambda e: True, timeout_s=60, attempts=4).call("x", store)
    assert store.asked == 1


def test_no_attempt_begins_after_the_deadline() -> None:
    retries = Retries(timeout_s=60, attempts=4)
    for timeout_s in (1e-9, 0.0):
        store = Store(passing(1))
        with pytest.raises(RetriableRemoteStorageError, match="failure 1"):
            retries.call("x", store, timeout_s=timeout_s)
        assert store.asked == 1


def test_after_a_close_no_attempt_begins_and_no_wait_continues() -> None:
    retries = Retries(timeout_s=60, attempts=4)
    asked = []

    def request() -> None:
        asked.append(1)
        retries.close()
        raise passing(1)

    with pytest.raises(RetriableRemoteStorageError, match="closed between two attempts"):
        retries.call("x", request)
    assert asked == [1]


def test_a_decorated_method_is_a_request(caplog: pytest.LogCaptureFixture) -> None:
    retries, store = Retries(timeout_s=60, attempts=2), Store(passing(1))

    @retries.repeated
    def put(key: str, *, body: str) -> str:
        """Puts."""
        return f"{key} {body} {store()}"

    assert put("k", body="b") == "k b answer"
    assert put.__doc__ == "Puts."
    [line] = warnings(caplog)
    assert "put" in line
