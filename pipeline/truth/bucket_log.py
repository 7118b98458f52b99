"""The log of a bucket alone: its layout describes itself, brokers are not asked.

What can be read is what complete copies hold of the newest lineage (`bucket_lineage`), from the end
down as far as there is no hole. The plan says so. The bucket is listed when topics or ends are
asked for and the last listing is old; a plan is made of the same listing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_protocol.types import EpochEntry, TopicIdPartition, TopicPartition
from pipeline.errors import SKIP_LOST, DamagedDataError, OptionError
from pipeline.log import TieredLog
from pipeline.plan.live import LiveIndex
from pipeline.plan.pieces import Tiers, stretches
from pipeline.plan.planning import Known, make_plan
from pipeline.store import open_store
from pipeline.truth.bucket_copies import BucketCopies, Copies, Home
from pipeline.truth.bucket_lineage import chain_of, contradicting, furthest, readable
from pipeline.truth.bucket_times import first_at
from pipeline.truth.committed import bring_open_from, open_from_of, transactions_of_each
from pipeline.truth.indexes import SegmentIndexes, describe, read_index
from pipeline.values import (
    Isolation,
    OffsetRange,
    Plan,
    Source,
    SplitLimits,
    StoreAddress,
    Where,
)
from rlmm.lifecycle import SegmentEntry
from rlmm.lineage import epoch_at
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata
from runtime.clock import Clock
from runtime.collector import resting_collector
from runtime.override import override

_LISTING_MS = 30_000
_LISTING_SHARE = 3
"""A listing is new for so many times as long as it took, if that is longer."""
_ALONE = "the bucket is read alone: the range is that of the complete copies of the newest lineage"


@dataclass(slots=True)
class _Partition:
    """The known state of a partition.

    Attributes:
        made_of: the copies that were there.
        usable: ids of those that the index holds.
        chain: leader epochs of the newest lineage.
        range: what can be read.
        warnings: what is excluded, and why.
    """

    index: LiveIndex
    made_of: Copies
    usable: frozenset[bytes]
    chain: Sequence[EpochEntry]
    range: OffsetRange
    warnings: tuple[str, ...]


def check_log_starts(
    starts: Iterable[TopicPartition], found: Collection[TopicPartition], topics: Collection[str]
) -> None:
    """Check that each log start is of an existing partition: a typo would show deleted records.

    Args:
        starts: partitions that a start was given for.
        found: all partitions of the topics that are read.
        topics: names of all topics of the bucket.

    Raises:
        OptionError: one is not there; says what there is.
    """
    read = {one.topic for one in found}
    for one in sorted(starts):
        if one.topic not in topics:
            there = ", ".join(sorted(topics)[:20])
            raise OptionError(
                f"a log start is given for {one}: the bucket has no topic {one.topic[:249]!r}, it"
                f" has {there}"
            )
        if one.topic in read and one not in found:
            there = ", ".join(str(each.partition) for each in found if each.topic == one.topic)
            raise OptionError(
                f"a log start is given for {one}: the bucket has nothing of this partition; it has"
                f" {there} of the topic"
            )


class BucketLog(TieredLog):
    """The tiered log as the objects of the store have it, without a cluster."""

    def __init__(self, where: Where, address: StoreAddress, clock: Clock) -> None:
        """Open the store and list it.

        Raises:
            OptionError: the plugin is of another layout, or a setting is wrong.
            StoreUnreachableError: the store cannot be used from here.
        """
        self._where = where
        self._clock = clock
        self._source = Source(address, None, "", where.isolation, where.fail_on_data_loss)
        store = open_store(address)
        if not isinstance(store, LayoutStorageManager):
            store.close()
            raise OptionError(
                f"{address.class_name}: its objects do not describe themselves, so the bucket"
                " cannot be read alone; give bootstrap servers"
            )
        self._store = store
        self._indexes = SegmentIndexes(lambda: store)
        self._copies = BucketCopies(store, self._indexes, where.topic_ids)
        self._partitions: dict[Home, _Partition] = {}
        self._list_at_ms = clock.monotonic_ms()
        self._are_starts_checked = False
        try:
            self._refresh()
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------ TieredLog

    @property
    @override
    def source(self) -> Source:
        return self._source

    @override
    def topics(self) -> list[str]:
        self._refresh()
        return sorted(self._copies.topics())

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Partitions of which nothing was copied are not known."""
        self._refresh()
        found = sorted(
            TopicPartition(name, number)
            for name in set(topics)
            for number in self._copies.partitions(self._copies.topic_id(name))
        )
        if not self._are_starts_checked:  # once: topics may go while a stream runs
            check_log_starts(self._where.log_starts, found, self._copies.topics())
            self._are_starts_checked = True
        return found

    @override
    def topic_id(self, topic: str) -> bytes:
        self._refresh()
        return self._copies.topic_id(topic)

    @override
    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {
            partition: self._start(partition, one)
            for partition, one in self._known(partitions).items()
        }

    @override
    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._refresh()
        return self.remote_ends(partitions)

    @override
    def remote_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ends(self._known(partitions))

    @override
    def epochs_before(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        return {
            partition: epoch_at(one.chain, offsets[partition] - 1)
            if one.range.start < offsets[partition] <= one.range.end
            else None
            for partition, one in self._known(offsets).items()
        }

    @override
    def offsets_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        known = self._known(times_ms)
        ends = self._ends(known)

        def find(partition: TopicPartition) -> int | None:
            one = known[partition]
            start = self._start(partition, one)
            runs = one.index.runs_from(max(start, one.range.start))
            found = first_at(self._store, runs, start, times_ms[partition])
            return None if found is None or found >= ends[partition] else found

        wanted = list(times_ms)
        return dict(zip(wanted, self._indexes.side_by_side(find, wanted), strict=True))

    @override
    @resting_collector()  # a plan makes very many values, and no cycles
    def plan(self, ranges: Mapping[TopicPartition, OffsetRange], limits: SplitLimits) -> Plan:
        held = self._known(ranges)
        ends = self._ends(held)
        runs_of = {
            partition: list(
                one.index.runs_from(max(ranges[partition].start, self._start(partition, one)))
            )
            for partition, one in held.items()
        }
        transactions_in = transactions_of_each(
            self._indexes, runs_of, ranges, self._where.isolation
        )
        known = {}
        warnings = list[str]()
        for partition, one in held.items():
            warnings += one.warnings
            start, transactions = self._start(partition, one), transactions_in[partition]
            tiers = Tiers(
                self._id_of(partition), runs_of[partition], start, None, transactions.undecided
            )
            count = one.index.count_from(start)
            known[partition] = Known(tiers, ends[partition], transactions.aborted, count)
        return make_plan(
            known,
            ranges,
            limits,
            fail_on_data_loss=self._where.fail_on_data_loss,
            notes=[_ALONE],
            warnings=warnings,
        )

    @override
    def close(self) -> None:
        self._indexes.close()
        self._store.close()

    # ------------------------------------------------------------------ inside

    def _refresh(self) -> None:
        began_ms = self._clock.monotonic_ms()
        if began_ms >= self._list_at_ms:
            self._copies.refresh()
            now_ms = self._clock.monotonic_ms()
            self._list_at_ms = now_ms + max(_LISTING_MS, _LISTING_SHARE * (now_ms - began_ms))

    def _id_of(self, partition: TopicPartition) -> TopicIdPartition:
        topic_id = self._copies.topic_id(partition.topic)
        return TopicIdPartition(topic_id, partition.partition, partition.topic)

    def _start(self, partition: TopicPartition, one: _Partition) -> int:
        return self._where.log_starts.get(partition, one.range.start)

    def _ends(self, known: Mapping[TopicPartition, _Partition]) -> dict[TopicPartition, int]:
        """The ends (exclusive) of what can be read, with this isolation."""
        ends = {partition: one.range.end for partition, one in known.items()}
        if self._where.isolation is Isolation.READ_COMMITTED:
            last = {
                partition: groups[-1]
                for partition, one in known.items()
                if (groups := stretches(one.index.runs_from(one.range.start)))
            }
            bring_open_from(self._indexes, last.values())
            for partition, stretch in last.items():
                open_from = open_from_of(self._indexes, stretch)
                if open_from is not None:
                    ends[partition] = min(ends[partition], open_from)
        return {one: max(end, self._start(one, known[one])) for one, end in ends.items()}

    def _known(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, _Partition]:
        homes: dict[TopicPartition, Home] = {}
        for partition in partitions:
            topic_id, number, _ = self._id_of(partition)
            homes[partition] = topic_id, number
        copies = self._copies.copies(homes.values())
        made = self._indexes.side_by_side(
            lambda one: self._settled(one, homes[one], copies[homes[one]]), list(homes)
        )
        return dict(zip(homes, made, strict=True))

    def _settled(self, partition: TopicPartition, home: Home, copies: Copies) -> _Partition:
        """The partition's live runs, brought up to date with its copies."""
        known = self._partitions.get(home)
        if known is not None and known.made_of == copies:
            return known
        warnings = [note for flaw in copies.flaws for note in self._refused(f"{partition}: {flaw}")]
        index = LiveIndex() if known is None else known.index
        before = frozenset[bytes]() if known is None else known.usable
        usable, chain = self._on_newest_lineage(copies, warnings)
        for gone in before - usable.keys():
            index.put(gone, None)
        for segment_id in usable.keys() - before:
            metadata = usable[segment_id]
            order = metadata.event_timestamp_ms
            index.put(segment_id, SegmentEntry(metadata, order, finished_order=order))
        index.settle(chain)
        span, holes = readable(index.runs)
        warnings += [
            f"{partition}: no complete copy holds offsets {hole.start:,} to {hole.end - 1:,};"
            f" what lies below offset {span.start:,} is excluded"
            for hole in holes[-3:]
        ]
        made = _Partition(index, copies, frozenset(usable), chain, span, tuple(warnings))
        self._partitions[home] = made
        return made

    def _on_newest_lineage(
        self, copies: Copies, warnings: list[str]
    ) -> tuple[dict[bytes, RemoteLogSegmentMetadata], list[EpochEntry]]:
        """The copies without those that contradict the newest one, and its chain."""
        usable = dict(copies.complete)
        last = furthest(usable.values())
        if last is None:
            return usable, []
        try:
            data = read_index(self._store, last, IndexType.LEADER_EPOCH)
            chain = chain_of(last, data, describe(last))
        except DamagedDataError as error:
            warnings += self._refused(str(error))
            others = {one: meta for one, meta in usable.items() if one != last.id.id}
            return self._on_newest_lineage(Copies(others), warnings)
        for one in contradicting(usable.values(), chain):
            warnings += self._refused(
                f"{describe(one)}: its leader epochs {list(map(tuple, one.leader_epochs))!r:.200}"
                f" contradict those of the newest copy {list(map(tuple, chain))!r:.200}"
            )
            del usable[one.id.id]
        return usable, chain

    def _refused(self, text: str) -> Sequence[str]:
        """The fate of a copy that cannot be used.

        Raises:
            DamagedDataError: unless lost data may be skipped.
        """
        if self._where.fail_on_data_loss:
            raise DamagedDataError(
                f"{text}; repair or remove the copy, or leave it out: {SKIP_LOST}"
            )
        return [f"{text}; the copy is excluded"]
