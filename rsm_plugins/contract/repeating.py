"""Promises about requests that fail once: the plugin repeats them, and nothing else.

Stores fail for a moment now and then: a lost connection, an overloaded server. A failed call of the
tier costs a pass of copying, or a consumer's fetch; a repeated request costs milliseconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rsm_plugins.api import RemoteResourceNotFoundError, RetriableRemoteStorageError
from rsm_plugins.contract import expect
from rsm_plugins.contract.base import Promises
from rsm_plugins.contract.flaky import Failure, FlakyStore
from rsm_plugins.contract.samples import INDEX_BYTES, LOG_BYTES, read, segment_data
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata
from runtime.raised import described


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call with a request that fails, and the check after it."""

    call: Callable[[], object]
    check: Callable[[], None] = lambda: None


_FOR_EVER = 1_000_000
_REQUESTS_OF_A_CALL_MAX = 1_000


class RepeatPromises(Promises):
    """Promises about a store that fails for a moment.

    Attributes:
        every_nth_request: 2 lets only the first, third, fifth ... request of a call fail, each in
            its own call. Use it for slow stores.
    """

    every_nth_request: int = 1

    def test_a_copy_continues_after_a_request_that_failed(self, flaky_store: FlakyStore) -> None:
        """A copy of which any one request fails succeeds, and reads back byte for byte."""
        self._copies(flaky_store, Failure.NOT_DONE)

    def test_a_copy_continues_after_an_answer_that_was_lost(self, flaky_store: FlakyStore) -> None:
        """A copy of which any one answer is lost succeeds, and reads back byte for byte."""
        self._copies(flaky_store, Failure.ANSWER_LOST)

    def test_a_deletion_continues_after_a_request_that_failed(
        self, flaky_store: FlakyStore
    ) -> None:
        """A deletion of which any one request fails, or its answer is lost, leaves nothing."""
        manager = flaky_store.manager
        for how in Failure:

            def deleted(what: str) -> Attempt:
                copied = self.copied(manager, self._next_segment())
                return Attempt(
                    partial(manager.delete_log_segment_data, copied),
                    partial(self.is_gone, manager, copied, what),
                )

            self._each_request(flaky_store, "a deletion", how, deleted)

    def test_reads_continue_after_a_request_that_failed(self, flaky_store: FlakyStore) -> None:
        """A read of which any one request fails gets its bytes."""
        manager = flaky_store.manager
        first, last = 7, len(LOG_BYTES) - 7

        def log(what: str) -> Attempt:
            copied = self.copied(manager, self._next_segment())
            call = partial(manager.fetch_log_segment, copied, first, last)
            return Attempt(partial(expect.reads, call, LOG_BYTES[first : last + 1], what))

        def index(what: str) -> Attempt:
            kind, copied = IndexType.OFFSET, self.copied(manager, self._next_segment())
            call = partial(manager.fetch_index, copied, kind)
            return Attempt(partial(expect.reads, call, INDEX_BYTES[kind], what))

        self._each_request(flaky_store, "a read of the log", Failure.NOT_DONE, log)
        self._each_request(flaky_store, "a read of an index", Failure.NOT_DONE, index)

    def test_a_store_that_continues_failing_is_given_up(self, flaky_store: FlakyStore) -> None:
        """Where every attempt fails, a call ends in time with a retriable error."""
        manager, requests = flaky_store.manager, flaky_store.requests
        copied = self.copied(manager)
        calls: dict[str, Callable[[], object]] = {
            "copy": lambda: manager.copy_log_segment_data(self._next_segment(), segment_data()),
            "fetch_log_segment": lambda: read(manager.fetch_log_segment(copied, 0)),
            "fetch_index": lambda: read(manager.fetch_index(copied, IndexType.OFFSET)),
            "delete": lambda: manager.delete_log_segment_data(copied),
        }
        for name, call in calls.items():
            what = f"{name} with a store that continues failing"
            requests.fail(0, times=_FOR_EVER)
            check = partial(expect.fails, RetriableRemoteStorageError, call, what)
            expect.together([check], deadline_s=self.deadline_s, what=what)
        requests.calm()

    def test_what_is_not_there_is_not_asked_for_again(self, flaky_store: FlakyStore) -> None:
        """A missing segment costs no more requests than one that is there."""
        manager, requests = flaky_store.manager, flaky_store.requests
        copied, absent = self.copied(manager), self._next_segment()
        requests.calm()
        read(manager.fetch_log_segment(copied, 0))
        allowed = requests.seen
        requests.calm()
        expect.fails(
            RemoteResourceNotFoundError,
            lambda: manager.fetch_log_segment(absent, 0),
            "a segment that was never copied",
        )
        expect.that(
            requests.seen <= allowed,
            f"{requests.seen} requests for a segment that is not there, {allowed} for one that is:"
            " a missing object is no failure that passes",
        )

    # ------------------------------------------------------------------ inside

    def _copies(self, flaky_store: FlakyStore, how: Failure) -> None:
        manager = flaky_store.manager

        def copied(what: str) -> Attempt:
            metadata = self._next_segment()

            def check() -> None:
                whole = self.made[metadata.id]
                expect.reads(lambda: manager.fetch_log_segment(whole, 0), LOG_BYTES, what)
                for kind, body in INDEX_BYTES.items():
                    expect.reads(partial(manager.fetch_index, whole, kind), body, what)

            return Attempt(partial(self.copied, manager, metadata), check)

        self._each_request(flaky_store, "a copy", how, copied)

    def _each_request(
        self,
        flaky_store: FlakyStore,
        name: str,
        how: Failure,
        prepare: Callable[[str], Attempt],
    ) -> None:
        """Make a call repeatedly, each time with another failing request."""
        requests, failed = flaky_store.requests, 0
        for number in range(0, _REQUESTS_OF_A_CALL_MAX, self.every_nth_request):
            what = f"{name} whose request {number} fails once ({how.value})"
            requests.calm()
            attempt = prepare(what)
            requests.fail(number, how=how)
            try:
                attempt.call()
            except Exception as e:  # any error breaks the promise
                raise AssertionError(f"{what}: raised {described(e)}") from e
            if not requests.failed:
                break
            failed += 1
            requests.calm()
            attempt.check()
        expect.that(failed > 0, f"no request of {name} went through the flaky store")

    def _next_segment(self) -> RemoteLogSegmentMetadata:
        return self.segment(len(self.made) + 1)
