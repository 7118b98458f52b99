"""When orphans may go, and an audit of a plugin that cannot be listed."""

import io
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from broker.config.keys_remote import REMOTE_KEYS
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import TopicIdPartition
from rlm.maintenance.incarnation import NO_COUNTER, Counter
from rlmm.lifecycle import PartitionFacts, SegmentEntry
from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import LogSegmentData, RemoteLogSegmentMetadata
from runtime.executors import InlinePool
from tests.support.samples.remote import COPY_MAX_MS, FINISHED, NOW_MS, PARTITION, entry, metadata
from tests.support.sim.clock import ManualClock
from tidemark.remote import orphans
from tidemark.remote.audit import Finding, Kind
from tidemark.remote.audit_run import Audit, AuditScope, Totals, lister_of
from tidemark.remote.orphans import (
    CLOCK_GRAIN_MS,
    delete_orphans,
    sort_out,
    store_now_ms,
    why_not_trusted,
)
from tidemark.remote.progress import progress
from tidemark.remote.store_view import StoreView
from tidemark.remote.trust import MANAGER_KEY, OURS, why_not_ours

TRUSTED = Totals(listed=True, metadata_is_whole=True, matched=1)


def orphan(age_ms: int, *, is_ours: bool = True) -> Finding:
    return Finding(Kind.ORPHAN, "", ("key.log",), PARTITION, modified_ms=NOW_MS - age_ms,
                   is_ours=is_ours)  # fmt: skip


def test_only_orphans_of_ours_older_than_the_longest_copy_may_go() -> None:
    edge = COPY_MAX_MS + CLOCK_GRAIN_MS
    old, at_edge, strange = orphan(edge + 1), orphan(edge), orphan(10 * edge, is_ours=False)
    others = [Finding(kind, "") for kind in Kind if kind is not Kind.ORPHAN]
    removable, kept = sort_out([old, at_edge, strange, *others], NOW_MS, COPY_MAX_MS)
    assert removable == [old]
    assert [one for one, _ in kept] == [at_edge, strange]


def test_an_orphan_from_the_store_s_future_stays() -> None:
    assert sort_out([orphan(-5_000)], NOW_MS, 1)[0] == []


@pytest.mark.parametrize(
    ("totals", "words"),
    [
        (replace(TRUSTED, listed=False), "not listed"),
        (replace(TRUSTED, metadata_is_whole=False), "not read whole"),
        (replace(TRUSTED, matched=0), "store of this cluster"),
    ],
)
def test_nothing_is_deleted_where_metadata_or_store_are_doubtful(
    totals: Totals, words: str
) -> None:
    assert why_not_trusted(TRUSTED) is None
    assert words in str(why_not_trusted(totals))


def test_the_probe_tells_the_store_s_time_and_leaves_nothing(tmp_path: Path) -> None:
    with closing(LocalFsRemoteStorageManager()) as storage:
        storage.configure({"dir": str(tmp_path)})
        lister = lister_of(storage)
        assert lister is not None
        reference = tmp_path / "reference"
        reference.touch()
        before_ms = reference.stat().st_mtime_ns // 1_000_000
        now_ms = store_now_ms(storage, lister)
        reference.touch()
        assert before_ms <= now_ms <= reference.stat().st_mtime_ns // 1_000_000
        assert [path.name for path in tmp_path.rglob("*")] == ["reference"]


class Known:
    """A metadata reader of a cluster that stands still."""

    is_whole = True

    def __init__(self, *entries: SegmentEntry) -> None:
        self._entries = list(entries)

    def read_to_end(self, _: object) -> set[object]:
        return set()

    def partitions(self) -> Iterator[PartitionFacts]:
        yield PartitionFacts(PARTITION, live_count=len(self._entries))

    def entries(self, _: object) -> list[SegmentEntry]:
        return self._entries

    def entry(self, _: object, segment_id: bytes) -> SegmentEntry | None:
        return next((one for one in self._entries if one.metadata.id.id == segment_id), None)


class Allowed:
    """Stands behind the metadata for so many questions."""

    def __init__(self, times: int) -> None:
        self._left = times

    def why_refused(self) -> str | None:
        self._left -= 1
        return None if self._left >= 0 else "the store's claim is later"

    def why_kept(self, partition: TopicIdPartition) -> str | None:
        return "of another broker" if partition != PARTITION else None


class Unlisted(RemoteStorageManager):
    """Somebody else's plugin: it has no listing, and nobody knows its layout."""

    def __init__(self, inner: RemoteStorageManager) -> None:
        self.configure = inner.configure  # type: ignore[method-assign]
        self.inner = inner

    def configure(self, configs: object) -> None: ...
    def copy_log_segment_data(self, metadata, data):  # type: ignore[no-untyped-def]
        return self.inner.copy_log_segment_data(metadata, data)

    def fetch_log_segment(self, metadata, start_position, end_position=None):  # type: ignore[no-untyped-def]
        return self.inner.fetch_log_segment(metadata, start_position, end_position)

    def fetch_index(self, metadata, index_type):  # type: ignore[no-untyped-def]
        return self.inner.fetch_index(metadata, index_type)

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.inner.delete_log_segment_data(metadata)

    def close(self) -> None:
        self.inner.close()


def stored(storage: RemoteStorageManager, first: int, log: bytes) -> SegmentEntry:
    """A segment of ten offsets that was copied."""
    one = metadata(first, first + 9, size_bytes=len(log), state=FINISHED)
    empty = io.BytesIO()
    storage.copy_log_segment_data(
        one, LogSegmentData(io.BytesIO(log), empty, empty, None, empty, b"0\n1\n0 0\n")
    )
    return entry(one, first)


def batch(first: int) -> bytes:
    return bytes(build_batch([(NOW_MS, None, b"value", ())] * 10, base_offset=first))


def run(storage: RemoteStorageManager, *entries: SegmentEntry) -> tuple[list[Finding], Totals]:
    with StoreView() as store, progress() as bars:
        audit = Audit(
            Known(*entries), storage, store, AuditScope(frozenset(), True, COPY_MAX_MS),  # type: ignore[arg-type]
            ManualClock(NOW_MS),
        )  # fmt: skip
        audit.observe(InlinePool(), bars)
        return list(audit.findings()), audit.totals


@pytest.mark.parametrize("is_listed", [True, False])
def test_contents_are_checked_with_and_without_a_listing(tmp_path: Path, is_listed: bool) -> None:
    with closing(LocalFsRemoteStorageManager()) as ours:
        ours.configure({"dir": str(tmp_path)})
        storage = ours if is_listed else Unlisted(ours)
        beyond = stored(storage, 50, batch(50) + batch(60))
        good, gone = stored(storage, 0, batch(0)), stored(storage, 10, batch(10))
        flipped = bytearray(batch(20))
        flipped[-1] ^= 1
        bad, cut = stored(storage, 20, bytes(flipped)), stored(storage, 30, batch(30)[:-1])
        elsewhere = stored(storage, 40, batch(0))
        storage.delete_log_segment_data(gone.metadata)
        found, totals = run(storage, good, gone, bad, cut, elsewhere, beyond)
    assert [(one.kind, one.start_offset) for one in found] == [
        (Kind.MISSING, 10),
        (Kind.CORRUPT, 20),
        (Kind.CORRUPT, 30),
        (Kind.CORRUPT, 40),
        (Kind.CORRUPT, 50),
    ]
    details = [one.detail for one in found]
    assert "batch at position 0: its checksum is wrong" in details[1]
    assert "cut" in details[2]
    assert "begins with offset 0, 40 is due" in details[3]
    assert "ends with offset 69, the segment with 59" in details[4]
    assert (totals.listed, totals.finished, totals.matched) == (is_listed, 6, 5)


def test_a_store_that_fails_makes_no_finding_but_says_so(tmp_path: Path) -> None:
    with closing(LocalFsRemoteStorageManager()) as storage:
        storage.configure({"dir": str(tmp_path)})
        one = stored(storage, 0, batch(0))
        for path in tmp_path.rglob("*.manifest"):
            path.unlink()
            path.mkdir()  # reading it fails in a way that is neither missing nor damaged
        found, totals = run(Unlisted(storage), one)
    assert (found, totals.unchecked_count) == ([], 1)
    assert "Is a directory" in totals.unchecked[0]


@pytest.mark.parametrize(("times", "gone"), [(0, 0), (1, 0), (2, 1), (3, 2), (9, 3)])
def test_claims_are_asked_before_each_batch_and_orphans_reported_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, gone: int
) -> None:
    monkeypatch.setattr(orphans, "BATCH", 1)
    told: list[tuple[int | None, bool]] = []
    with (
        closing(LocalFsRemoteStorageManager()) as storage,
        StoreView() as store,
        progress() as bars,
    ):
        storage.configure({"dir": str(tmp_path)})
        known = Known(stored(storage, 0, batch(0)))
        for first in (10, 20, 30):
            stored(storage, first, batch(first))
        for path in tmp_path.rglob("*-*"):
            os.utime(path, (1, 1))
        audit = Audit(
            known,
            storage,
            store,
            AuditScope(frozenset(), False, 1),
            ManualClock(NOW_MS),  # type: ignore[arg-type]
        )
        audit.observe(InlinePool(), bars)
        assert len(list(audit.findings())) == 3

        def tell(one: Finding) -> None:
            told.append((one.start_offset, all((tmp_path / key).exists() for key in one.keys)))

        done = delete_orphans(storage, known, audit, 1, Allowed(times), tell)  # type: ignore[arg-type]
        assert (done.refused is not None) is (times == 0)
        assert [one.start_offset for one in done.deleted] == [10, 20, 30][:gone]
        assert told == [(first, True) for first in (10, 20, 30)[:gone]]
        assert len(list(tmp_path.rglob("*.log"))) == 4 - gone
        assert {reason for _, reason in done.kept} <= {"the store's claim is later"}


@pytest.mark.parametrize(
    ("found", "known", "words"),
    [
        (7, Counter(9, 7, (3,)), None),
        (5, Counter(9, 7, (3, 5)), None),  # noted, and the last one was not written
        (8, Counter(9, 7, (3,)), "claim 8 of broker 2 is later than this cluster's"),
        (8, Counter(99, 9, (3,)), "is none of this cluster's"),
        (2, Counter(9, 7, (3,)), "is none of this cluster's"),
        (None, Counter(9, 7, (3,)), "no claim of broker 2"),
        (7, NO_COUNTER, "holds no claim: run this on the machine of broker 2"),
        (None, NO_COUNTER, "no claim of broker 2"),
    ],
)
def test_only_a_claim_that_these_files_noted_allows_a_deletion(
    found: int | None, known: Counter, words: str | None
) -> None:
    reason = why_not_ours(2, found, known, "tier-incarnation")
    assert (reason is None) if words is None else words in str(reason)


def test_the_manager_s_name_in_either_language_is_ours() -> None:
    default = next(key.default for key in REMOTE_KEYS if key.name == MANAGER_KEY)
    assert default in OURS
    assert "tests.support.tier.least_manager:LeastManager" not in OURS
