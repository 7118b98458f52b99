"""A remote store that fails on request of a test: a wrapper around any plugin.

Used only where the broker accepts commands of tests; then a call without faults costs a look at an
empty list. Faults hit whole calls of the plugin, but neither claims nor listings.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, BinaryIO, cast

from rsm_plugins.api import ClaimKeeper, RemoteStorageManager, RetriableRemoteStorageError
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from runtime.override import override
from runtime.rng import seeded


class StoreFaultKind(StrEnum):
    """Effect of a fault on a call."""

    SLOW = "slow"
    """The call begins late."""
    REFUSE = "refuse"
    """The call fails at once with a retriable error; nothing is done."""
    HANG = "hang"
    """The call begins when the fault is removed."""
    LOSE_PUT_ANSWER = "lose_put_answer"
    """The segment is copied, and then the copy fails with a retriable error."""


class StoreCall(StrEnum):
    """Calls that a fault may hit."""

    COPY = "copy"
    READ = "read"
    INDEX = "index"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFault:
    """A fault of the store.

    Attributes:
        id: Its number.
        kind: Effect on the calls that it hits.
        call: Only calls of this kind are hit, None: all.
        topic: Only calls about segments of this topic are hit, None: of all.
        delay_ms: Delay of a slow call, or of the error for a lost answer.
        count: Number of hits until the fault is over, None: until it is removed.
        probability: Of a hit, above 0 and at most 1.
        seed: Of the random numbers where `probability` is below 1.
    """

    id: int
    kind: StoreFaultKind
    call: StoreCall | None = None
    topic: str | None = None
    delay_ms: int = 0
    count: int | None = None
    probability: float = 1.0
    seed: int = 0


OnHit = Callable[[int, StoreCall, str], None]
"""Called with the fault's number, the call and its topic, before the hit has an effect."""


class _Entry:
    """A fault in force."""

    __slots__ = ("fault", "gone", "hits", "roll")

    def __init__(self, fault: StoreFault) -> None:
        self.fault = fault
        self.roll = seeded(fault.seed)
        self.hits = 0
        self.gone = threading.Event()

    def takes(self, call: StoreCall, topic: str) -> bool:
        """True if it hits a call; counts the hit."""
        fault = self.fault
        if fault.count is not None and self.hits >= fault.count:
            return False
        if fault.call not in (None, call) or fault.topic not in (None, topic):
            return False
        if fault.kind is StoreFaultKind.LOSE_PUT_ANSWER and call is not StoreCall.COPY:
            return False
        if fault.probability < 1 and self.roll() >= fault.probability:
            return False
        self.hits += 1
        return True


class StoreFaults:
    """The faults of one store; used by its calls, from many threads.

    Attributes:
        on_hit: Called for each hit.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: tuple[_Entry, ...] = ()
        self.on_hit: OnHit = lambda number, call, topic: None

    def set(self, faults: Iterable[StoreFault]) -> None:
        """Replace the faults; one whose id stays keeps its counts.

        Calls that hang or are slow because of a removed fault continue.
        """
        with self._lock:
            known = {entry.fault.id: entry for entry in self._entries}
            self._entries = tuple(
                known.pop(one.id) if one.id in known else _Entry(one) for one in faults
            )
        for entry in known.values():
            entry.gone.set()

    @contextmanager
    def around(self, call: StoreCall, topic: str) -> Iterator[None]:
        """Apply the faults of a call, before and after the block that does its work.

        Raises:
            RetriableRemoteStorageError: The call is refused, or its answer is lost.
        """
        if not self._entries:
            yield
            return
        with self._lock:
            hitting = [entry for entry in self._entries if entry.takes(call, topic)]
        for entry in hitting:
            self.on_hit(entry.fault.id, call, topic)
        for entry in hitting:
            _before(entry, call)
        yield
        for entry in hitting:
            if entry.fault.kind is StoreFaultKind.LOSE_PUT_ANSWER:
                entry.gone.wait(entry.fault.delay_ms / 1000)
                raise RetriableRemoteStorageError(f"fault {entry.fault.id}: the answer is lost")


def _before(entry: _Entry, call: StoreCall) -> None:
    match entry.fault.kind:
        case StoreFaultKind.SLOW:
            entry.gone.wait(entry.fault.delay_ms / 1000)
        case StoreFaultKind.HANG:
            entry.gone.wait()
        case StoreFaultKind.REFUSE:
            raise RetriableRemoteStorageError(f"fault {entry.fault.id}: {call} is refused")
        case StoreFaultKind.LOSE_PUT_ANSWER:
            pass  # afterwards


def with_faults(inner: RemoteStorageManager, faults: StoreFaults) -> RemoteStorageManager:
    """A storage manager as `inner`, except for the calls that `faults` hit."""
    if isinstance(inner, ClaimKeeper):
        return _ClaimingFaultyStore(inner, faults)
    return _FaultyStore(inner, faults)


class _FaultyStore(RemoteStorageManager):
    """Passes each call on, through its faults."""

    def __init__(self, inner: RemoteStorageManager, faults: StoreFaults) -> None:
        self._inner, self._faults = inner, faults

    def __getattr__(self, name: str) -> Any:
        """Further attributes of a plugin, such as its list of settings."""
        return getattr(self._inner, name)

    @override
    def configure(self, configs: Mapping[str, str]) -> None:
        self._inner.configure(configs)

    @override
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        with self._faults.around(StoreCall.COPY, metadata.topic_id_partition.topic):
            return self._inner.copy_log_segment_data(metadata, data)

    @override
    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        with self._faults.around(StoreCall.READ, metadata.topic_id_partition.topic):
            return self._inner.fetch_log_segment(metadata, start_position, end_position)

    @override
    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        with self._faults.around(StoreCall.INDEX, metadata.topic_id_partition.topic):
            return self._inner.fetch_index(metadata, index_type)

    @override
    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        with self._faults.around(StoreCall.DELETE, metadata.topic_id_partition.topic):
            self._inner.delete_log_segment_data(metadata)

    def close(self) -> None:
        """Close the plugin; hanging calls continue."""
        self._faults.set(())
        self._inner.close()


class _ClaimingFaultyStore(_FaultyStore, ClaimKeeper):
    """The same for a plugin that keeps claims."""

    @property
    def _keeper(self) -> ClaimKeeper:
        return cast("ClaimKeeper", self._inner)

    @override
    def read_claim(self, cluster_id: str, node_id: int) -> int | None:
        return self._keeper.read_claim(cluster_id, node_id)

    @override
    def write_claim(self, cluster_id: str, node_id: int, number: int) -> None:
        self._keeper.write_claim(cluster_id, node_id, number)

    @override
    def delete_claim(self, cluster_id: str, node_id: int) -> None:
        self._keeper.delete_claim(cluster_id, node_id)
