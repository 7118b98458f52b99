"""Reads `__remote_log_metadata` to its end, as any client may, into a store of its own.

Records are validated by the code that the metadata manager uses (`TopicReader`: fence, state
tables, skipped records), so a tool knows exactly the segments that the tiers know. Each call of
`read_to_end` goes to the end of that moment and says what has changed on the way: an audit needs to
know what the metadata said before and after it looked at the store.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_client.blocking import ClusterError
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition
from rlmm.lifecycle import PartitionFacts, SegmentEntry
from rlmm.store import Changes, MetadataStore, PartitionKey, partition_key
from rlmm.topic_based.confluent_port import make_client
from rlmm.topic_based.reader import TopicReader
from rlmm.topic_based.roles import Tracked
from rlmm.topic_based.topic_port import ReachedEnd, TopicRecord, metadata_partition_for
from runtime.clock import Clock

log = logging.getLogger(__name__)

_SILENCE_S = 30.0
_POLL_S = 1.0
_BATCH_MAX = 1_000

Moved = set[tuple[PartitionKey, bytes]]
"""Segments, by partition and id, whose state changed."""


class MetadataReader:
    """One reader of the topic; use it in a `with` block."""

    def __init__(
        self,
        bootstrap: str,
        settings: Mapping[str, str],
        store: MetadataStore,
        clock: Clock,
        *,
        partition_count: int,
        only: Iterable[int] | None = None,
    ) -> None:
        """Connect.

        Args:
            bootstrap: the cluster.
            settings: of the client, as the user gave them.
            store: empty; takes what the records say.
            clock: for when a state was seen first.
            partition_count: partitions of the metadata topic.
            only: the metadata partitions to read; None: all.

        Raises:
            ClusterError: a setting is wrong.
        """
        self.partition_count = partition_count
        self._store = store
        self._clock = clock
        self._reader = TopicReader(store, clock)
        numbers = range(partition_count) if only is None else sorted(set(only))
        self._tracked = {number: Tracked(store.position(number)) for number in numbers}
        try:
            self._consumer = make_client(
                Consumer,
                settings,
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": "tidemark-remote-tools",  # never joined: partitions are assigned
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "earliest",
                    "enable.partition.eof": True,
                    "allow.auto.create.topics": False,
                    "fetch.wait.max.ms": 50,  # other questions wait behind a fetch that waits
                    "logger": log,
                },
            )
        except ValueError as error:
            raise ClusterError(f"--command-config: {error}") from error
        self.first_offsets: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def is_whole(self) -> bool:
        """Whether every record ever written was read and understood."""
        return not any(self.first_offsets.values()) and not self.skipped_count

    @property
    def skipped_count(self) -> int:
        """Records that could not be understood."""
        return sum(self._reader.counts.skipped.values())

    def read_to_end(self, on_progress: Callable[[int, int], None]) -> Moved:
        """Read on to the end as it is now.

        Args:
            on_progress: told records read and records to read in this call, now and then.

        Returns:
            Segments whose state changed on the way.

        Raises:
            ClusterError: the topic cannot be read.
        """
        ends = {number: self._end_of(number) for number in self._tracked}
        behind = {n for n, tracked in self._tracked.items() if tracked.position.offset < ends[n]}
        total = sum(ends[n] - self._tracked[n].position.offset for n in behind)
        self._consumer.assign(
            [
                TopicPartition(REMOTE_LOG_METADATA_TOPIC, n, self._tracked[n].position.offset)
                for n in behind
            ]
        )
        moved: Moved = set()
        quiet_until_ms = self._clock.monotonic_ms() + _SILENCE_S * 1_000
        while behind:
            for number, stretch in self._poll(behind).items():
                tracked = self._tracked[number]
                changes = self._reader.consume(number, tracked, stretch)
                moved |= _moved(changes)
                quiet_until_ms = self._clock.monotonic_ms() + _SILENCE_S * 1_000
                if tracked.position.offset >= ends[number]:
                    behind.discard(number)
            left = sum(ends[n] - self._tracked[n].position.offset for n in behind)
            on_progress(total - left, total)
            if self._clock.monotonic_ms() > quiet_until_ms:
                raise ClusterError(f"nothing comes from {REMOTE_LOG_METADATA_TOPIC}-{min(behind)}")
        self._consumer.unassign()
        on_progress(total, total)
        return moved

    def partitions(self) -> Iterator[PartitionFacts]:
        """All user partitions that records ever named, deleted ones too."""
        for number in self._tracked:
            yield from self._store.all_facts(number)

    def facts(self, partition: TopicIdPartition) -> PartitionFacts | None:
        """The known state of a user partition; None: no record ever named it."""
        return self._store.facts(self._number_of(partition), partition_key(partition))

    def entries(self, partition: TopicIdPartition) -> list[SegmentEntry]:
        """Live segments of a user partition, ascending by start offset."""
        return list(self._store.entries(self._number_of(partition), partition_key(partition)))

    def entry(self, partition: TopicIdPartition, segment_id: bytes) -> SegmentEntry | None:
        """A live segment."""
        return self._store.entry(self._number_of(partition), partition_key(partition), segment_id)

    # ------------------------------------------------------------------ inside

    def _number_of(self, partition: TopicIdPartition) -> int:
        return metadata_partition_for(partition, self.partition_count)

    def _end_of(self, number: int) -> int:
        try:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(REMOTE_LOG_METADATA_TOPIC, number), timeout=_SILENCE_S
            )
        except KafkaException as error:
            raise ClusterError(
                f"{REMOTE_LOG_METADATA_TOPIC}-{number}: {error.args[0].str()}"
            ) from error
        self.first_offsets.setdefault(number, low)
        return int(high)

    def _poll(self, behind: set[int]) -> dict[int, list[TopicRecord | ReachedEnd]]:
        """The records that have come, by metadata partition."""
        stretches: dict[int, list[TopicRecord | ReachedEnd]] = {}
        message, count = self._consumer.poll(_POLL_S), 0
        while message is not None:
            self._take(message, behind, stretches)
            count += 1
            message = self._consumer.poll(0) if count < _BATCH_MAX else None
        return stretches

    def _take(
        self,
        message: Message,
        behind: set[int],
        stretches: dict[int, list[TopicRecord | ReachedEnd]],
    ) -> None:
        error = message.error()
        number, offset = message.partition(), message.offset()
        if number is None or offset is None or number not in behind:
            return
        if error is None:
            epoch = message.leader_epoch()
            event: TopicRecord | ReachedEnd = TopicRecord(
                number, offset, -1 if epoch is None else epoch, message.value()
            )
        elif error.code() == KafkaError._PARTITION_EOF:
            event = ReachedEnd(number, offset)
        elif error.retriable():
            return
        else:
            raise ClusterError(f"{REMOTE_LOG_METADATA_TOPIC}-{number}: {error.str()}")
        stretches.setdefault(number, []).append(event)


def _moved(changes: Changes | None) -> Moved:
    if changes is None:
        return set()
    return {
        place
        for place, (before, after) in changes.segments.items()
        if before is None or after is None or before.metadata.state is not after.metadata.state
    }
