"""The log of a running cluster, of what its brokers and the metadata topic say.

A plan is made of one round: the brokers' offsets, the metadata topic to its end, then the epoch
chain. Every question of a round names the leader epochs of its beginning. A leader that changed in
between refuses it, and the round is repeated. So a chain never meets offsets or segments of another
leader. The local log start is asked before the metadata is read: what brokers drop later was in the
remote tier before, and is in what was read.
"""

import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    stop_all,
    wait_random_exponential,
)

from kafka_client.blocking import ClusterError, UnreachableError
from kafka_client.transport import Address
from kafka_protocol.types import (
    REMOTE_LOG_METADATA_TOPIC,
    EpochEntry,
    TopicIdPartition,
    TopicPartition,
)
from kafka_protocol.wire.primitives import uuid_to_text
from pipeline.cluster.asker import Asker, LeaderChangedError
from pipeline.cluster.cluster import Cluster, NotNowError, chain_from_ends, connect, near_epochs
from pipeline.cluster.questions import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    EpochAsked,
    FoundOffset,
    broker_settings,
    epoch_ends,
    epochs_before,
    list_offsets,
    tiered_topics,
)
from pipeline.errors import OptionError, TopicReplacedError
from pipeline.log import TieredLog
from pipeline.plan.live import LiveIndex, LiveRun
from pipeline.plan.pieces import Tiers, stretches
from pipeline.plan.planning import Known, make_plan
from pipeline.store import open_store
from pipeline.truth.committed import bring_open_from, open_from_of, transactions_of_each
from pipeline.truth.indexes import SegmentIndexes
from pipeline.truth.metadata_topic import MetadataTopic
from pipeline.values import (
    Isolation,
    OffsetRange,
    Plan,
    Source,
    SplitLimits,
    StoreAddress,
    Where,
)
from rsm_plugins.api import RemoteStorageManager
from runtime.clock import Clock
from runtime.collector import resting_collector
from runtime.override import override

_ROUNDS_S = 60.0
_ROUNDS_MIN = 5
"""The first round may take long, as it reads all that others read on from."""
_FIRST_POLL_S = 5.0
"""A wrong address is more likely than a cluster that is about to start."""
_CLASS = "remote.log.storage.manager.class.name"
_PREFIX = "rsm.config."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Round:
    """Partitions as they were at one moment.

    Attributes:
        log_starts, local_starts: inclusive.
        ends: exclusive; what the isolation lets read.
    """

    log_starts: Mapping[TopicPartition, int]
    local_starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class ClusterLog(TieredLog):
    """The tiered log as brokers and metadata topic have it."""

    def __init__(self, where: Where, clock: Clock) -> None:
        """Reach the cluster.

        Raises:
            ClusterError: no broker answers, or a client setting cannot be met.
        """
        assert where.cluster is not None, "a bucket alone is read by BucketLog"
        self._where = where
        self._asker = Asker(connect(where.cluster))
        self._metadata = MetadataTopic(self._asker, clock)
        self._indexes = SegmentIndexes(self._opened_store)
        self._store: RemoteStorageManager | None = None
        self._source: Source | None = None
        self._ids: dict[str, bytes] = {}
        self._epochs: dict[bytes, dict[int, int]] = {}  # the newest that were seen, by partition
        self._names: set[str] = set()  # of topics that were there
        self._tiered: dict[str, bool] = {}
        self._chains: dict[TopicIdPartition, tuple[int, frozenset[int], list[EpochEntry]]] = {}
        try:
            self._asker.look([], deadline_s=_FIRST_POLL_S)
        except UnreachableError as error:
            self.close()
            raise UnreachableError(
                f"no broker answers host {socket.gethostname()}: {error}; see whether the bootstrap"
                " servers are right and run"
            ) from error
        except ClusterError:
            self.close()
            raise

    # ------------------------------------------------------------------ TieredLog

    @property
    @override
    def source(self) -> Source:
        if self._source is None:
            self._source = Source(
                self._where.store or self._store_of_brokers(),
                self._where.cluster,
                self._asker.cluster.cluster_id,
                self._where.isolation,
                self._where.fail_on_data_loss,
            )
        return self._source

    def topics(self) -> list[str]:
        """The topic of the remote tier itself is excluded."""
        cluster = self._asker.again(lambda: self._not_older(self._asker.look(), None))
        return sorted(set(cluster.topics) - {REMOTE_LOG_METADATA_TOPIC})

    @override
    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        cluster = self._look(wanted := set(topics))
        return sorted(
            TopicPartition(name, number)
            for name in wanted
            for number in cluster.topic(name).leaders
        )

    @override
    def topic_id(self, topic: str) -> bytes:
        self._look([topic])
        return self._ids[topic]

    @override
    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._special(partitions, EARLIEST)

    @override
    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._special(partitions, LATEST)

    def remote_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """For committed records: as far as the remote tier can tell them."""
        found = self._round(set(partitions))
        ends = dict(found.log_starts)
        first = dict[TopicPartition, list[LiveRun]]()  # the stretch that begins at log start
        for partition, log_start in found.log_starts.items():
            runs = _from(self._index(partition), log_start)
            if runs and runs[0].first <= log_start:
                (first[partition], *_) = stretches(runs)
        committed = self._where.isolation is Isolation.READ_COMMITTED
        if committed:
            bring_open_from(self._indexes, first.values())
        for partition, stretch in first.items():
            end = min(stretch[-1].last + 1, found.ends[partition])
            open_from = open_from_of(self._indexes, stretch) if committed else None
            end = end if open_from is None else min(end, open_from)
            ends[partition] = max(ends[partition], end)
        return ends

    @override
    def epochs_before(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        def ask() -> dict[TopicPartition, int | None]:
            leader_epochs = self._leader_epochs(offsets)
            starts = self._special(offsets, EARLIEST)
            held = {one: offset for one, offset in offsets.items() if offset > starts[one]}
            return {**dict.fromkeys(offsets), **epochs_before(self._asker, held, leader_epochs)}

        return _repeated(ask)

    @override
    def offsets_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        found = self._asked({one: max(0, time_ms) for one, time_ms in times_ms.items()})
        return {
            partition: one.offset if one.offset >= 0 else None for partition, one in found.items()
        }

    @override
    @resting_collector()  # a plan makes very many values, and no cycles
    def plan(self, ranges: Mapping[TopicPartition, OffsetRange], limits: SplitLimits) -> Plan:
        found = self._round(set(ranges))
        cluster = self._asker.again(lambda: self._asker.cluster)
        known = {}
        runs_of = {
            partition: _from(self._index(partition), max(wanted.start, found.log_starts[partition]))
            for partition, wanted in ranges.items()
        }
        transactions_in = transactions_of_each(
            self._indexes, runs_of, ranges, self._where.isolation
        )
        for partition, runs in runs_of.items():
            transactions = transactions_in[partition]
            tiers = Tiers(
                self._id_of(partition),
                runs,
                found.log_starts[partition],
                found.local_starts[partition],
                transactions.undecided,
                _leader_in(cluster, partition),
            )
            count = self._index(partition).count_from(found.log_starts[partition])
            known[partition] = Known(tiers, found.ends[partition], transactions.aborted, count)
        skipped = self._metadata.skipped_count
        return make_plan(
            known,
            ranges,
            limits,
            fail_on_data_loss=self._where.fail_on_data_loss,
            warnings=[f"{skipped} records of the metadata topic could not be read"]
            if skipped
            else (),
        )

    @override
    def close(self) -> None:
        self._indexes.close()
        self._metadata.close()
        self._asker.close()
        if self._store is not None:
            self._store.close()
            self._store = None

    # ------------------------------------------------------------------ rounds

    def _round(self, partitions: set[TopicPartition]) -> _Round:
        """Look at everything again, until no leader changes meanwhile."""
        return _repeated(lambda: self._one_round(partitions))

    def _one_round(self, partitions: set[TopicPartition]) -> _Round:
        epochs = self._leader_epochs(partitions)

        def ask(time_ms: int) -> dict[TopicPartition, int]:
            asked = dict.fromkeys(partitions, time_ms)
            answers = list_offsets(
                self._asker, asked, isolation=self._where.isolation, epochs=epochs
            )
            return {partition: one.offset for partition, one in answers.items()}

        tiered = self._tiered_of({partition.topic for partition in partitions})
        local_starts, ends = ask(EARLIEST_LOCAL), ask(LATEST)
        by_id = {one: self._id_of(one) for one in partitions if one.topic in tiered}
        if by_id:
            siblings = [
                TopicIdPartition(self._ids[name], number, name)
                for name in tiered
                for number in self._asker.cluster.topic(name).leaders
            ]
            self._metadata.read(by_id.values(), later=siblings)
            self._bring_chains(by_id, epochs)
        log_starts = ask(EARLIEST)
        for partition in partitions - by_id.keys():
            local_starts[partition] = log_starts[partition]
        return _Round(log_starts, local_starts, ends)

    def _leader_epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The present ones.

        Raises:
            LeaderChangedError: a partition has no leader.
        """
        wanted = set(partitions)
        cluster = self._look({partition.topic for partition in wanted})
        epochs = {
            one: cluster.topic(one.topic).leader_epochs.get(one.partition, -1) for one in wanted
        }
        for partition, epoch in epochs.items():
            if epoch < 0:
                raise LeaderChangedError(f"{partition} has no leader now")
        return epochs

    def _tiered_of(self, topics: set[str]) -> set[str]:
        """The topics with remote storage; of the others no metadata need be read.

        A topic is asked for once. Where that changes later, the brokers serve all of it.
        """
        new = topics - self._tiered.keys()
        if new:
            tiered = tiered_topics(self._asker, new)
            self._tiered.update({topic: topic in tiered for topic in new})
        return {topic for topic in topics if self._tiered[topic]}

    def _bring_chains(
        self, by_id: Mapping[TopicPartition, TopicIdPartition], epochs: Mapping[TopicPartition, int]
    ) -> None:
        """Settle the live indexes on the leaders' chains; asked only for what is not known yet."""
        missing: dict[TopicPartition, frozenset[int]] = {}
        for partition, at in by_id.items():
            named = frozenset({*self._metadata.index(at).epochs(), epochs[partition]})
            known = self._chains.get(at)
            if known is None or known[0] != epochs[partition] or not named <= known[1]:
                missing[partition] = named
        asked = [
            EpochAsked(partition, near)
            for partition, named in missing.items()
            for near in near_epochs(named)
        ]
        ends: dict[TopicPartition, dict[int, int]] = {}
        for one, end in epoch_ends(self._asker, asked, epochs).items():
            ends.setdefault(one.partition, {})[end.epoch] = end.end_offset
        for partition, named in missing.items():
            chain = chain_from_ends(ends.get(partition, {}), epochs[partition])
            self._chains[by_id[partition]] = epochs[partition], named, chain
        for at in by_id.values():
            self._metadata.index(at).settle(self._chains[at][2])

    def _special(
        self, partitions: Iterable[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int]:
        found = self._asked(dict.fromkeys(partitions, time_ms))
        return {partition: one.offset for partition, one in found.items()}

    def _asked(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """Ask the leaders of this moment: one that was deposed and does not know it may not answer.

        It is named by the newest leader epoch that any broker told.
        """

        def ask() -> dict[TopicPartition, FoundOffset]:
            epochs = self._leader_epochs(times_ms)
            return list_offsets(
                self._asker, times_ms, isolation=self._where.isolation, epochs=epochs
            )

        return _repeated(ask)

    # ------------------------------------------------------------------ inside

    def _look(self, topics: Iterable[str]) -> Cluster:
        """Look at the cluster; the topics must still be those that were seen first.

        Raises:
            UnknownTopicError: one is not there.
            TopicReplacedError: one has another id now.
        """
        names = set(topics)
        wanted = {*names, REMOTE_LOG_METADATA_TOPIC}
        cluster = self._asker.again(lambda: self._not_older(self._asker.look(wanted), names))
        if not names <= cluster.topics.keys():
            cluster = self._asker.look()  # for the name that was perhaps meant
        for name in names:
            topic_id = cluster.topic(name).topic_id
            known = self._ids.setdefault(name, self._where.topic_ids.get(name, topic_id))
            if known != topic_id:
                raise TopicReplacedError(
                    f"topic {name} was deleted and made again: its id is {uuid_to_text(topic_id)},"
                    f" not {uuid_to_text(known)}; its offsets mean other records now, so start"
                    " a new query"
                )
        return cluster

    def _not_older(self, cluster: Cluster, asked: set[str] | None) -> Cluster:
        """Refuse what a broker says that has not heard yet of what another one told.

        No partition ever goes, and no leader epoch falls. A topic may go; all brokers must say so.

        Args:
            cluster: what it says.
            asked: for which topics; None: all.

        Raises:
            NotNowError: it is behind.
        """
        for name, topic in cluster.topics.items():
            known = self._epochs.get(topic.topic_id, {})
            if len(topic.leaders) < len(known):
                raise NotNowError(
                    f"topic {name}: a broker knows {len(topic.leaders)} of {len(known)} partitions"
                )
            for number, epoch in topic.leader_epochs.items():
                if 0 <= epoch < known.get(number, -1):
                    raise NotNowError(
                        f"{name}-{number}: a broker knows leader epoch {epoch}, another one"
                        f" {known[number]}"
                    )
            self._epochs[topic.topic_id] = {
                number: max(epoch, known.get(number, -1))
                for number, epoch in topic.leader_epochs.items()
            }
        gone = (self._names if asked is None else self._names & asked) - cluster.topics.keys()
        for one in self._asker.look_at_each(gone) if gone else ():
            if one.topics:
                raise NotNowError(f"topic {min(one.topics)}: some brokers do not know it")
        self._names = (self._names - gone) | cluster.topics.keys()
        return cluster

    def _id_of(self, partition: TopicPartition) -> TopicIdPartition:
        return TopicIdPartition(self._ids[partition.topic], partition.partition, partition.topic)

    def _index(self, partition: TopicPartition) -> LiveIndex:
        return self._metadata.index(self._id_of(partition))

    def _store_of_brokers(self) -> StoreAddress | None:
        settings = broker_settings(self._asker)
        name = settings.get(_CLASS)
        if not name or settings.get("remote.log.storage.system.enable") != "true":
            return None
        return StoreAddress(
            name,
            {
                key.removeprefix(_PREFIX): value
                for key, value in settings.items()
                if key.startswith(_PREFIX)
            },
        )

    def _opened_store(self) -> RemoteStorageManager:
        if self._store is None:
            address = self.source.store
            if address is None:
                raise OptionError(
                    "the brokers do not say where the remote tier is: name it by tidemark.bucket"
                )
            self._store = open_store(address, self.source.cluster_id)
        return self._store


def _from(index: LiveIndex, offset: int) -> list[LiveRun]:
    return list(index.runs_from(offset))


def _leader_in(cluster: Cluster, partition: TopicPartition) -> Address | None:
    topic = cluster.topics.get(partition.topic)
    node = -1 if topic is None else topic.leaders.get(partition.partition, -1)
    return cluster.brokers.get(node)


def _repeated(round_: Callable[[], T]) -> T:
    retrying = Retrying(
        retry=retry_if_exception_type(LeaderChangedError),
        stop=stop_all(stop_after_delay(_ROUNDS_S), stop_after_attempt(_ROUNDS_MIN)),
        wait=wait_random_exponential(multiplier=0.05, max=2),
        reraise=True,
    )
    return retrying(round_)
