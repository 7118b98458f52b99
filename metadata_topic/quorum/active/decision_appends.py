"""Appends the decisions of a term, gathered into one write.

Decisions are gathered while an earlier append is being committed, up to `append_linger_ms` or a
limit of bytes. Without one they are appended at once (DIFFERS: Kafka always lingers). If the log
must be flushed first, the append waits for the flush.
"""

from typing import Final, Protocol

from kafka_protocol.errors import KafkaError
from kafka_protocol.records.batch import read_header
from metadata_topic.quorum.active.ports import ControllerWorld
from metadata_topic.raft.messages import BatchFacts
from runtime.scheduler import Timer

_FLUSH_POLL_MS: Final = 2
"""Interval of checks for the end of a flush that an append waits for."""


class Gathered:
    """Contiguous batches that are not appended yet.

    Each decision keeps its own batches, because an image ends at the end of a decision, never
    inside a batch. Besides, a broker epoch is the offset of its own record.
    """

    __slots__ = ("_data", "_facts")

    def __init__(self) -> None:
        self._data = bytearray()
        self._facts: list[BatchFacts] = []

    def __len__(self) -> int:
        """Bytes not appended yet."""
        return len(self._data)

    def add(self, data: bytearray) -> None:
        """Add the batches of a decision; `data` may be kept and extended."""
        self._facts += batch_facts(data)
        if self._data:
            self._data += data
        else:
            self._data = data

    def take(self) -> tuple[tuple[BatchFacts, ...], bytearray]:
        """Return all batches, and begin again with none."""
        facts, data = tuple(self._facts), self._data
        self._facts, self._data = [], bytearray()
        return facts, data


def batch_facts(data: bytearray) -> list[BatchFacts]:
    """Describe the batches in `data`, whose sound form is assumed."""
    facts: list[BatchFacts] = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        epoch = header.partition_leader_epoch
        facts.append(BatchFacts(header.base_offset, header.last_offset + 1, epoch))
        position += header.size_bytes
    return facts


class AppendListener(Protocol):
    """Receives the outcome of appends."""

    def on_appended(self) -> None:
        """All gathered batches are in the log."""
        ...

    def on_not_appended(self, error: KafkaError) -> None:
        """None of the gathered batches is in the log; the log takes further appends."""
        ...

    def on_broken(self, reason: str) -> None:
        """The content of the log is unknown, or it takes no more appends of this term."""
        ...


class DecisionAppends:
    """Gathers and appends batches in one term; on the loop's thread.

    Attributes:
        end_offset: End of the last append (exclusive); 0 before the first.
        wrote_ms: Time of the last append, or of the begin of the term.
    """

    def __init__(self, world: ControllerWorld, epoch: int, listener: AppendListener) -> None:
        """Begin with no batches; this node leads `epoch`."""
        self.end_offset = 0
        self.wrote_ms = world.clock.monotonic_ms()
        self._log, self._clock, self._scheduler = world.log, world.clock, world.scheduler
        self._linger_ms = world.settings.append_linger_ms
        self._max_bytes = world.settings.max_batch_bytes
        self._epoch, self._listener = epoch, listener
        self._gathered = Gathered()
        self._ready = 0
        self._timer: Timer | None = None
        self._is_over = False

    @property
    def is_empty(self) -> bool:
        """True if all batches are appended."""
        return not self._gathered

    @property
    def _is_committing(self) -> bool:
        """True if an append is not committed yet."""
        return self._ready < self.end_offset

    def add(self, data: bytearray) -> None:
        """Take batches; they are appended in order, at once or after the linger."""
        self._gathered.add(data)
        if len(self._gathered) >= self._max_bytes:
            self._append()
        elif self._timer is None:
            self._append_after(self._linger_ms if self._is_committing else 0)

    def on_committed(self, ready: int) -> None:
        """Take the position below which (exclusive) all is committed and applied here."""
        self._ready = max(self._ready, ready)
        if self._gathered and not self._is_committing:
            self._append_after(0)

    def stop(self) -> None:
        """Make no more appends."""
        self._is_over = True
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _append_after(self, delay_ms: int) -> None:
        self._cancel()
        if not self._is_over:
            self._timer = self._scheduler.call_later(delay_ms, self._append)

    def _append(self) -> None:
        self._cancel()
        if self._log.must_flush(len(self._gathered)):
            self._append_after(_FLUSH_POLL_MS)
            return
        self.wrote_ms = self._clock.monotonic_ms()
        batches, data = self._gathered.take()
        try:
            is_taken = self._log.propose(batches, data, self._epoch)
        except KafkaError as error:
            if not self._is_over:  # else the log broke
                self._listener.on_not_appended(error)
            return
        except Exception as error:  # noqa: BLE001  (the content of the log is unknown now)
            if not self._is_over:
                self._listener.on_broken(f"an append failed: {error!r}")
            return
        if is_taken:
            self.end_offset = batches[-1].end_offset
            self._listener.on_appended()
        elif not self._is_over:
            text = f"the log did not take batches at offset {batches[0].base_offset}"
            self._listener.on_broken(text)
