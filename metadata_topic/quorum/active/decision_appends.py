"""Appends what a term of the active controller decides: gathered, in one go, and when.

Decisions are gathered while something that was appended is being committed, for `append_linger_ms`
at most, or until there is much. Nobody waits for company that may not come (DIFFERS: Kafka always
waits so long). Where the log must be flushed first the append waits for that.
"""

from typing import Final, Protocol

from kafka_protocol.errors import KafkaError
from kafka_protocol.records.batch import read_header
from metadata_topic.quorum.active.ports import ControllerWorld
from metadata_topic.raft.messages import BatchFacts
from runtime.scheduler import Timer

_FLUSH_POLL_MS: Final = 2
"""So often it looks whether the log is flushed, where an append must wait for that."""


class Gathered:
    """Batches that lie back to back and are not appended yet.

    Each decision keeps its own batches: an image ends where a decision ends, never inside a batch,
    and a broker epoch is the offset of its own record.
    """

    __slots__ = ("_data", "_facts")

    def __init__(self) -> None:
        self._data = bytearray()
        self._facts: list[BatchFacts] = []

    def __len__(self) -> int:
        """Bytes that wait."""
        return len(self._data)

    def add(self, data: bytearray) -> None:
        """Take the batches of one more decision; they are the caller's no longer."""
        self._facts += batch_facts(data)
        if self._data:
            self._data += data
        else:
            self._data = data

    def take(self) -> tuple[tuple[BatchFacts, ...], bytearray]:
        """Hand out what waits, and begin again."""
        facts, data = tuple(self._facts), self._data
        self._facts, self._data = [], bytearray()
        return facts, data


def batch_facts(data: bytearray) -> list[BatchFacts]:
    """Say where the batches of metadata records in `data` lie, which are known to be sound."""
    facts: list[BatchFacts] = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        epoch = header.partition_leader_epoch
        facts.append(BatchFacts(header.base_offset, header.last_offset + 1, epoch))
        position += header.size_bytes
    return facts


class AppendListener(Protocol):
    """Hears what became of an append."""

    def on_appended(self) -> None:
        """Everything that was gathered is in the log."""
        ...

    def on_not_appended(self, error: KafkaError) -> None:
        """Nothing of what was gathered is in the log, which continues."""
        ...

    def on_broken(self, reason: str) -> None:
        """Nobody knows what is in the log, or it takes no more of this term."""
        ...


class DecisionAppends:
    """See the module; on the loop's thread.

    Attributes:
        end_offset: where the last append ended (exclusive); 0 before the first.
        wrote_ms: when something was appended last, or the term began.
    """

    def __init__(self, world: ControllerWorld, epoch: int, listener: AppendListener) -> None:
        """Begin with nothing; `epoch` is led by this node."""
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
        """Whether nothing waits to be appended."""
        return not self._gathered

    @property
    def _is_committing(self) -> bool:
        """Whether something that was appended is not committed yet."""
        return self._ready < self.end_offset

    def add(self, data: bytearray) -> None:
        """Take batches; they are appended now or soon, behind those before them."""
        self._gathered.add(data)
        if len(self._gathered) >= self._max_bytes:
            self._append()
        elif self._timer is None:
            self._append_after(self._linger_ms if self._is_committing else 0)

    def on_committed(self, ready: int) -> None:
        """Everything below `ready` (exclusive) is committed, and applied here."""
        self._ready = max(self._ready, ready)
        if self._gathered and not self._is_committing:
            self._append_after(0)

    def stop(self) -> None:
        """Append nothing any more."""
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
        except Exception as error:  # noqa: BLE001  (nobody knows what is in the log now)
            if not self._is_over:
                self._listener.on_broken(f"an append failed: {error!r}")
            return
        if is_taken:
            self.end_offset = batches[-1].end_offset
            self._listener.on_appended()
        elif not self._is_over:
            text = f"the log did not take batches at offset {batches[0].base_offset}"
            self._listener.on_broken(text)
