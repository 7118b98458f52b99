"""Waits for the high watermark: in which order they end, and how."""

import asyncio
import gc
from typing import Any

from broker.replica.followers import CommitFutures
from tests.support.worlds.pools import turns


class Gone(Exception):
    """The leadership is over."""


async def test_waits_end_by_their_offsets_and_not_as_they_came() -> None:
    """A batch that is sent again waits for less than one that was appended before."""
    commits = CommitFutures()
    late, early, same, last = (commits.add(end) for end in (7, 3, 7, 9))
    commits.reached(2)
    assert not early.done()
    commits.reached(3)
    assert early.done()
    assert not late.done()
    commits.reached(8)
    assert late.done()
    assert same.done()
    assert not last.done()
    commits.reached(9)
    assert last.done()
    assert not commits.waiting


async def test_a_wait_that_was_given_up_holds_no_other_up() -> None:
    commits = CommitFutures()
    given_up, other = commits.add(3), commits.add(3)
    given_up.cancel()
    commits.reached(3)
    assert other.done()
    failing = commits.add(5)
    commits.add(4).cancel()
    commits.fail(Gone())
    assert isinstance(failing.exception(), Gone)


async def test_a_failure_that_nobody_asks_for_is_no_error_in_the_log() -> None:
    """The client of a produce may have left before the leadership ended."""
    said: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: said.append(context))
    commits = CommitFutures()
    commits.add(3)
    commits.fail(Gone())
    await turns(5)
    gc.collect()
    assert said == []
