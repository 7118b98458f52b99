"""Looks at metadata and store of a running cluster in an order that allows no false finding.

While an audit looks, brokers copy and delete. What is known of them (docs/tiering.md, "Write
orders"): STARTED is durable and read back before the first object of a segment is written, all
objects are there before FINISHED is written, DELETE_STARTED is durable and read back before the
first object is deleted, and all are gone before DELETE_FINISHED. States only go forward, an id is
never used twice, and after DELETE_FINISHED no late PUT can land. So the observations are made in
this order:

    M1  the metadata, to its end
    L   a listing of the store
    C   contents of segments that were FINISHED at M1
    M2  the metadata again, from M1 on to its end

and ids whose state changed between M1 and M2 ("in motion") are not validated this time.

1. FINISHED at M2 and not in motion: it was FINISHED all the time from M1 to M2. Its objects were
   all there before M1, and they may not be deleted before M2. Whatever L or C did not find is
   missing, and whatever C read wrong is wrong.
2. Not live at M2 and not in motion, but an object of it is in L. A rightful writer's STARTED was
   readable before that object was written, so before M2, and since nothing was read of the id
   between M1 and M2, it was deleted before M1, objects first. So the object was left behind.
3. STARTED or DELETE_STARTED at M2: objects may be there or not; nothing is said of them.

"Not live" covers a deleted topic: its segments stay live until each of their DELETE_FINISHED is
written, and PARTITION_FINISHED comes after that.

Ends are asked after L and C are over: M2 holds all that was readable then. The argument needs a
store whose listing shows an object that was there all the time, as all of ours do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from difflib import get_close_matches

from kafka_protocol.types import TopicIdPartition
from pipeline.cluster.cluster import UnknownTopicError
from rlmm.lifecycle import PartitionFacts
from rlmm.store import PartitionKey, partition_key
from rsm_plugins.api import ObjectLister, RemoteStorageError, RemoteStorageManager
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.objects import UnsafeNameError, partition_folder
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from runtime.clock import Clock
from runtime.executors import Pool
from tidemark.remote.audit import SUFFIXES, Finding, Held, Kind, Observed, layout_bases, validate
from tidemark.remote.audit_brokers import NOBODY, Led
from tidemark.remote.contents import Checked, check
from tidemark.remote.metadata_reader import MetadataReader
from tidemark.remote.progress import Bars
from tidemark.remote.store_view import StoreView

_WINDOW = 32
_REASONS_MAX = 20
_REPORT_EVERY = 1_000


@dataclass(slots=True)
class Totals:
    """The observations of an audit.

    Attributes:
        findings: by kind.
        matched: FINISHED segments of which the store holds something: proof that metadata and
            store belong together.
        unchecked: why segments could not be read back, the first few.
        unchecked_count: all of them.
        in_motion: segments that changed while the audit looked: not validated.
        listed: whether the store could be listed.
        metadata_is_whole: every record ever written was read and understood.
        led: by leader.
    """

    partitions: int = 0
    segments: int = 0
    finished: int = 0
    matched: int = 0
    objects: int = 0
    objects_bytes: int = 0
    read_bytes: int = 0
    in_motion: int = 0
    unchecked_count: int = 0
    listed: bool = False
    metadata_is_whole: bool = False
    unchecked: list[str] = field(default_factory=list)
    findings: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    led: dict[int, Led] = field(default_factory=dict)

    @property
    def findings_count(self) -> int:
        """All of them."""
        return sum(self.findings.values())


@dataclass(frozen=True, slots=True)
class AuditScope:
    """The scope of an audit, and its method.

    Attributes:
        topics: only topics of these names, deleted ones too; empty: everything.
        deep: read everything back.
        copy_max_ms: the longest copy.
        leader_of: the leader of a partition, for the totals by leader.
    """

    topics: frozenset[str]
    deep: bool
    copy_max_ms: int
    leader_of: Callable[[TopicIdPartition], int] = lambda _partition: NOBODY

    def includes(self, partition: TopicIdPartition) -> bool:
        """Whether the partition is to be looked at."""
        return not self.topics or partition.topic in self.topics


def lister_of(storage: RemoteStorageManager) -> ObjectLister | None:
    """The plugin's listing, where it has one and keeps our layout: names must say segments."""
    is_ours = isinstance(storage, LayoutStorageManager)
    return storage if is_ours and isinstance(storage, ObjectLister) else None


def bases_in(storage: RemoteStorageManager) -> Callable[[RemoteLogSegmentMetadata], Sequence[str]]:
    """Where a plugin may put the objects of a segment."""
    if not isinstance(storage, LayoutStorageManager):
        return layout_bases

    def bases(metadata: RemoteLogSegmentMetadata) -> Sequence[str]:
        try:
            return [names.base for names in storage.places(metadata)]
        except (RemoteStorageError, UnsafeNameError):  # what is not ours has no place
            return ()

    return bases


class Audit:
    """One run: observe, then ask for findings, as often as wanted."""

    def __init__(
        self,
        metadata: MetadataReader,
        storage: RemoteStorageManager,
        store: StoreView,
        wanted: AuditScope,
        clock: Clock,
    ) -> None:
        self.totals = Totals()
        self._metadata, self._storage, self._store = metadata, storage, store
        self._wanted, self._clock = wanted, clock
        self._lister = lister_of(storage)
        self._bases = bases_in(storage)
        self._moved: dict[PartitionKey, set[bytes]] = {}
        self._broken: dict[bytes, tuple[Kind, str]] = {}

    def observe(self, pool: Pool, bars: Bars) -> None:
        """M1, L, C and M2.

        Args:
            pool: reads segments back.
            bars: say how far it is.

        Raises:
            ClusterError, RemoteStorageError: something could not be read; there is no result.
        """
        self._metadata.read_to_end(bars.phase("reading metadata"))  # M1
        self._check_names()
        if self._lister is not None:
            self._list(self._lister, bars)  # L
        self._check_contents(pool, bars)  # C
        for key, segment_id in self._metadata.read_to_end(bars.phase("reading it again")):
            self._moved.setdefault(key, set()).add(segment_id)  # M2
        self.totals.metadata_is_whole = self._metadata.is_whole

    def findings(self) -> Iterator[Finding]:
        """Compare partition by partition; sets `totals` on the way."""
        self.totals.findings = dict.fromkeys(Kind, 0)
        now_ms = self._clock.wall_ms()
        self.totals.in_motion = sum(map(len, self._moved.values()))
        for seen in self._observed():
            led = self._led_with(seen.partition)
            for finding in validate(seen, now_ms=now_ms, copy_max_ms=self._wanted.copy_max_ms):
                self.totals.findings[finding.kind] += 1
                led.findings += 1
                yield finding
        for one in self._store.foreign() if not self._wanted.topics else ():
            self.totals.findings[Kind.FOREIGN] += 1
            detail = "its name is none of this layout's"
            yield Finding(
                Kind.FOREIGN, detail, (one.key,), size_bytes=one.size_bytes,
                modified_ms=one.modified_ms,
            )  # fmt: skip

    # ------------------------------------------------------------------ inside

    def _check_names(self) -> None:
        known = {facts.topic_id_partition.topic for facts in self._metadata.partitions()}
        for name in sorted(self._wanted.topics - known):
            near = get_close_matches(name, known, 1, 0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UnknownTopicError(f"nothing of topic {name[:249]!r} was ever tiered{hint}")

    def _list(self, lister: ObjectLister, bars: Bars) -> None:
        tell = bars.phase("listing the store")
        for prefix in self._prefixes():
            for one in lister.list_objects(prefix):
                self._store.add(one)
                if self._store.listed.objects % _REPORT_EVERY == 0:
                    tell(self._store.listed.objects, None)
        tell(self._store.listed.objects, self._store.listed.objects)
        self._store.complete()
        self.totals.listed = True
        self.totals.objects, self.totals.objects_bytes = self._store.listed

    def _prefixes(self) -> Sequence[str]:
        """All of the store, or the folders of some topics where nothing of them lies elsewhere."""
        folders = set()
        for facts in self._metadata.partitions() if self._wanted.topics else ():
            partition = facts.topic_id_partition
            if self._wanted.includes(partition):
                folder = partition_folder(partition).partition("/")[0] + "/"
                folders.add(folder)
                for entry in self._metadata.entries(partition):
                    if not all(base.startswith(folder) for base in self._bases(entry.metadata)):
                        return [""]
        return sorted(folders) or [""]

    def _check_contents(self, pool: Pool, bars: Bars) -> None:
        tell, done = bars.phase("reading back"), 0
        pending: dict[Future[Checked], RemoteLogSegmentMetadata] = {}
        total = sum(
            facts.live_count
            for facts in self._metadata.partitions()
            if self._wanted.includes(facts.topic_id_partition)
        )
        for metadata, sizes in self._to_read():
            call = pool.submit(check, self._storage, metadata, sizes, deep=self._wanted.deep)
            pending[call] = metadata
            done += 1
            if len(pending) >= _WINDOW:
                self._collect(pending)
                tell(done - len(pending), total)
        while pending:
            self._collect(pending)
            tell(done - len(pending), total)

    def _to_read(self) -> Iterator[tuple[RemoteLogSegmentMetadata, Mapping[str, int] | None]]:
        """Segments FINISHED at M1 of which no object is missing, with the sizes listed."""
        for facts in self._metadata.partitions():
            partition = facts.topic_id_partition
            if not facts.live_count or not self._wanted.includes(partition):
                continue
            held = None if self._lister is None else self._store.held(partition)
            for entry in self._metadata.entries(partition):
                if entry.metadata.state is not SegmentState.COPY_SEGMENT_FINISHED:
                    continue
                if held is None:
                    yield entry.metadata, None
                    continue
                there = held.get(next(iter(self._bases(entry.metadata)), ""))
                if there is not None and len(there.sizes) == len(SUFFIXES):
                    yield entry.metadata, there.sizes

    def _collect(self, pending: dict[Future[Checked], RemoteLogSegmentMetadata]) -> None:
        for call in wait(pending, return_when=FIRST_COMPLETED).done:
            metadata = pending.pop(call)
            checked = call.result()
            self.totals.read_bytes += checked.read_bytes
            if checked.kind is not None:
                self._broken[metadata.id.id] = checked.kind, checked.reason
            elif checked.reason:
                self.totals.unchecked_count += 1
                if len(self.totals.unchecked) < _REASONS_MAX:
                    self.totals.unchecked.append(checked.reason)

    def _observed(self) -> Iterator[Observed]:
        totals = self.totals
        totals.partitions = totals.segments = totals.finished = totals.matched = 0
        totals.led.clear()
        known = {
            partition_key(facts.topic_id_partition): facts
            for facts in self._metadata.partitions()
            if self._wanted.includes(facts.topic_id_partition)
        }
        only_in_store = [
            partition
            for partition in (self._store.partitions() if self._lister is not None else ())
            if partition_key(partition) not in known and self._wanted.includes(partition)
        ]
        for facts in known.values():
            yield self._observe_partition(facts.topic_id_partition, facts)
        for partition in only_in_store:
            yield self._observe_partition(partition, None)

    def _observe_partition(
        self, partition: TopicIdPartition, facts: PartitionFacts | None
    ) -> Observed:
        entries = self._metadata.entries(partition) if facts is not None else []
        held = self._store.held(partition) if self._lister is not None else None
        finished = [
            one.metadata
            for one in entries
            if one.metadata.state is SegmentState.COPY_SEGMENT_FINISHED
        ]
        totals = self.totals
        totals.partitions += 1
        totals.segments += len(entries)
        totals.finished += len(finished)
        led = self._led_with(partition)
        led.partitions += 1
        led.finished += len(finished)
        led.finished_bytes += sum(one.segment_size_bytes for one in finished)
        totals.matched += sum(self._is_there(one, held) for one in finished)
        return Observed(
            partition,
            facts is not None,
            entries,
            self._moved.get(partition_key(partition), set()),
            held,
            self._bases,
            self._broken,
            facts is not None and facts.delete_state is not None,
        )

    def _led_with(self, partition: TopicIdPartition) -> Led:
        return self.totals.led.setdefault(self._wanted.leader_of(partition), Led())

    def _is_there(
        self, metadata: RemoteLogSegmentMetadata, held: Mapping[str, Held] | None
    ) -> bool:
        """Whether the store holds anything of a segment."""
        if held is None:
            kind, _ = self._broken.get(metadata.id.id, (None, ""))
            return kind is not Kind.MISSING
        return any(base in held for base in self._bases(metadata))
