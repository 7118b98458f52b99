"""The contract can fail: plugins that break a promise are caught by its name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rsm_plugins.api import RemoteStorageManager, RetriableRemoteStorageError
from rsm_plugins.contract import AllPromises
from rsm_plugins.contract.flaky import FlakyRequests, FlakyStore
from rsm_plugins.contract.run import Candidate, Outcome, Verdict, ask, ask_all, promise_names
from rsm_plugins.retries import Retries, passes_by_name
from rsm_plugins.segment import RemoteLogSegmentMetadata
from rsm_plugins.testing import RemoteStorageManagerContract
from tests.support.stores import broken_plugins as broken

LARGE_BYTES = 5 << 20
CAUGHT = [
    (broken.EndIsExclusive, "test_ranges_are_inclusive_at_both_ends", "bytes [0, 1]"),
    (broken.EndIsExclusive, "test_ranges_of_a_large_segment_are_exact", "of 5242880"),
    (broken.IgnoresStart, "test_an_open_range_goes_to_the_end", "bytes from 1 on"),
    (broken.IgnoresStart, "test_many_readers_of_one_segment", "readers"),
    (broken.ShowsHalfCopies, "test_a_half_copy_is_not_readable", "byte 0 of offset_index"),
    (broken.ShowsHalfCopies, "test_a_log_of_another_size_than_announced_is_refused", "announced"),
    (broken.CopiesOnce, "test_copy_twice_under_one_id_is_harmless", "it is there"),
    (broken.AppendsTheSecondCopy, "test_copy_twice_under_one_id_is_harmless", "got 20998 bytes"),
    (broken.DeleteWantsIt, "test_delete_twice_is_fine", "RemoteResourceNotFoundError"),
    (broken.DeleteWantsIt, "test_delete_of_what_never_was_is_fine", "no such part"),
    (broken.RaisesItsOwnErrors, "test_what_was_never_copied_is_not_found", "raised KeyError"),
    (broken.RaisesItsOwnErrors, "test_a_missing_transaction_index_is_not_found", "KeyError"),
    (
        broken.OneNameIsOneTopic,
        "test_the_same_name_with_another_topic_id_is_another_topic",
        "the old topic",
    ),
    (
        broken.OffsetsAreNames,
        "test_segments_of_the_same_offsets_are_kept_apart",
        "with the same offsets",
    ),
    (broken.OffsetsAreNames, "test_delete_leaves_other_segments_alone", "NotFound"),
    (
        broken.TrustsTopicNames,
        "test_names_that_lead_out_of_the_store_are_refused",
        "'../../etc'",
    ),
    (broken.ClosesTheFiles, "test_a_copy_leaves_the_files_open", "closed a file"),
    (broken.ReadsFromWhereFilesStand, "test_files_are_copied_from_their_begin", "the log"),
    (broken.ManyWordsOfItsOwn, "test_custom_metadata_fits_the_default_limit", "the limit is 128"),
    (broken.ListsTheDeleted, "test_nothing_is_listed_after_delete", "deleted, and listed"),
    (broken.ListsEverything, "test_a_listing_is_filtered_by_prefix", "begin otherwise"),
    (broken.ListsWrongSizes, "test_every_object_of_a_segment_is_listed", "with 1 bytes"),
]


class TestMemory(RemoteStorageManagerContract):
    wrong_settings = ({},)

    @pytest.fixture
    def manager(self) -> RemoteStorageManager:
        return made(broken.Lister)

    @pytest.fixture
    def refusing_manager(self) -> RemoteStorageManager:
        return made(broken.LooksAtItsStore, "full")

    @pytest.fixture
    def flaky_store(self) -> FlakyStore:
        return flaky(broken.Lister)


def made(kind: type[broken.Memory], store: str = "") -> broken.Memory:
    manager = kind()
    manager.configure({"name": store or kind.__name__})
    return manager


def flaky(
    kind: type[broken.Memory],
    attempts: int = 2,
    passes: Callable[[BaseException], bool] = passes_by_name,
) -> FlakyStore:
    manager, requests = made(kind), FlakyRequests()
    retries = Retries(passes, timeout_s=10, attempts=attempts)

    def request(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with requests.request(lambda: RetriableRemoteStorageError("flaky")):
                return method(*args)

        return retries.repeated(call)

    for name in (
        "copy_log_segment_data",
        "fetch_log_segment",
        "fetch_index",
        "delete_log_segment_data",
    ):
        setattr(manager, name, request(getattr(manager, name)))
    return FlakyStore(manager, requests)


def asked(kind: type[broken.Memory], name: str) -> Outcome:
    candidate = Candidate(lambda: made(kind), large_segment_bytes=LARGE_BYTES)
    return ask(candidate, name, made(kind), [])


@pytest.mark.parametrize(
    ("kind", "name", "words"), CAUGHT, ids=[f"{kind.__name__}-{name}" for kind, name, _ in CAUGHT]
)
def test_a_broken_plugin_is_caught_by_name_and_told_why(
    kind: type[broken.Memory], name: str, words: str
) -> None:
    outcome = asked(kind, name)
    assert outcome.verdict is Verdict.BROKEN
    assert words in outcome.reason
    healthy = broken.Lister if issubclass(kind, broken.Lister) else broken.Memory
    assert asked(healthy, name).verdict is Verdict.KEPT


def test_a_plugin_that_takes_any_setting_is_caught() -> None:
    class Wrong(AllPromises):
        wrong_settings = ({},)

    with pytest.raises(AssertionError, match="was accepted"):
        Wrong().test_wrong_settings_are_refused(made(broken.TakesAnySetting))


def test_a_plugin_that_hangs_breaks_its_promise_and_not_the_run() -> None:
    class Impatient(Candidate):
        def new_promises(self) -> AllPromises:
            promises = super().new_promises()
            promises.deadline_s = 0.2
            return promises

    candidate = Impatient(lambda: made(broken.Hangs))
    outcome = ask(candidate, "test_every_index_reads_back", made(broken.Hangs), [])
    assert outcome.verdict is Verdict.BROKEN
    assert "did not return" in outcome.reason


def test_a_wrong_class_of_error_from_an_unreachable_store_is_caught() -> None:
    name = "test_an_unreachable_store_is_retriable_and_never_hangs"
    candidate = Candidate(lambda: made(broken.Memory))
    assert ask(candidate, name, made(broken.Memory), []).verdict is Verdict.NOT_ASKED
    candidate = replace(candidate, make_unreachable=lambda: made(broken.Memory))
    outcome = ask(candidate, name, made(broken.Memory), [])
    assert outcome.verdict is Verdict.BROKEN
    assert "copy without a store: raised nothing" in outcome.reason


@pytest.mark.parametrize(
    ("kind", "what"),
    [(broken.BelievesItsStore, "small"), (broken.BelievesItsStoreOfLargeObjects, "large")],
)
def test_a_plugin_that_does_not_look_at_a_refusal_is_caught(
    kind: type[broken.Memory], what: str
) -> None:
    name = "test_a_store_that_refuses_to_write_fails_the_copy"
    candidate = Candidate(lambda: made(kind))
    assert ask(candidate, name, made(kind), []).verdict is Verdict.NOT_ASKED
    outcome = ask(
        replace(candidate, make_refusing=lambda: made(kind, "full")), name, made(kind), []
    )
    assert outcome.verdict is Verdict.BROKEN
    assert f"copy of a {what} segment to a store that refuses to write: raised nothing" in (
        outcome.reason
    )


def test_a_plugin_that_looks_at_a_refusal_keeps_its_promise() -> None:
    kind, name = broken.LooksAtItsStore, "test_a_store_that_refuses_to_write_fails_the_copy"
    candidate = Candidate(lambda: made(kind), make_refusing=lambda: made(kind, "full"))
    assert ask(candidate, name, made(kind), []).verdict is Verdict.KEPT


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (
            lambda: flaky(broken.Memory, attempts=1),
            "test_a_copy_continues_after_a_request_that_failed",
            "a copy whose request 0 fails once (it is refused): raised RetriableRemoteStorageError",
        ),
        (
            lambda: flaky(broken.Memory, attempts=1),
            "test_reads_continue_after_a_request_that_failed",
            "a read of the log whose request 0",
        ),
        (
            lambda: flaky(broken.Memory, attempts=1),
            "test_a_deletion_continues_after_a_request_that_failed",
            "a deletion whose request 0",
        ),
        (
            lambda: flaky(broken.AppendsTheSecondCopy),
            "test_a_copy_continues_after_an_answer_that_was_lost",
            "a copy whose request 0 fails once (it is done, and its answer is lost): got",
        ),
        (
            lambda: flaky(broken.RaisesItsOwnErrors, passes=lambda error: True),
            "test_what_is_not_there_is_not_asked_for_again",
            "raised KeyError",
        ),
        (
            lambda: flaky(broken.Memory, passes=lambda error: True),
            "test_what_is_not_there_is_not_asked_for_again",
            "2 requests for a segment that is not there, 1 for one that is",
        ),
        (
            lambda: FlakyStore(made(broken.Memory), FlakyRequests()),
            "test_a_copy_continues_after_a_request_that_failed",
            "no request of a copy went through the flaky store",
        ),
        (
            lambda: FlakyStore(made(broken.Memory), FlakyRequests()),
            "test_a_store_that_continues_failing_is_given_up",
            "raised nothing",
        ),
    ],
)
def test_a_plugin_that_repeats_wrongly_is_caught(
    make: Callable[[], FlakyStore], name: str, words: str
) -> None:
    candidate = Candidate(lambda: made(broken.Memory))
    assert ask(candidate, name, made(broken.Memory), []).verdict is Verdict.NOT_ASKED
    candidate = replace(candidate, make_flaky=lambda: flaky(broken.Memory))
    assert ask(candidate, name, made(broken.Memory), []).verdict is Verdict.KEPT
    outcome = ask(replace(candidate, make_flaky=make), name, made(broken.Memory), [])
    assert outcome.verdict is Verdict.BROKEN
    assert words in outcome.reason


def test_all_promises_are_asked_and_nothing_is_left_behind() -> None:
    left: list[str] = []
    janitor = made(broken.Lister, "alone")
    candidate = Candidate(lambda: made(broken.Lister, "alone"), large_segment_bytes=LARGE_BYTES)
    outcomes = list(ask_all(candidate, janitor, left))
    assert [one.name for one in outcomes if one.verdict is Verdict.BROKEN] == []
    assert [one.name for one in outcomes] == promise_names()
    inherited = {name for name in dir(RemoteStorageManagerContract) if name.startswith("test_")}
    assert set(promise_names()) == inherited
    assert len({one.sentence for one in outcomes}) == len(outcomes)
    assert left == []
    assert janitor.store.segments == {}


class _RaisesWrongly(broken.Memory):
    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        raise KeyError("oops")


def test_an_error_of_no_interface_is_told_with_its_type_and_place() -> None:
    outcome = asked(_RaisesWrongly, "test_copy_twice_under_one_id_is_harmless")
    line = _RaisesWrongly.delete_log_segment_data.__code__.co_firstlineno + 1
    assert outcome.reason == f"raised KeyError: 'oops' ({__file__}:{line})"
