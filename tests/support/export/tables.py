"""A table in memory, with a catalogue's promise: a commit holds for the state that was seen."""

from collections.abc import Sequence

from pipeline.jobs.table_ledger import CommitConflictError, Seen
from pipeline.jobs.values import Committed, DataFile
from tests.support.export.places import Steps


class MemoryStore:
    """What the table's own log holds."""

    def __init__(self) -> None:
        self.seen = Seen(None, 0, "")
        self.addresses: dict[str, int] = {}
        """Of files, and the epoch whose commit added them."""


class MemoryTable:
    """See `Table`: one process's view of a store."""

    def __init__(self, store: MemoryStore, steps: Steps) -> None:
        self._store, self._steps = store, steps

    @property
    def name(self) -> str:
        return "memory.table"

    def mark(self, run: str) -> str:
        return run

    def look(self) -> Seen:
        return self._steps.run(lambda: self._store.seen)

    def append(
        self, seen: Seen, run: str, committed: Committed, files: Sequence[tuple[str, DataFile]]
    ) -> None:
        def commit() -> None:
            if self._store.seen.epoch != seen.epoch:
                raise CommitConflictError("somebody was faster")
            self._store.seen = Seen(committed, seen.epoch + 1, run)
            self._store.addresses |= dict.fromkeys((one for one, _ in files), seen.epoch + 1)

        self._steps.run(commit)

    def named_files(self, after: int) -> set[str]:
        """As few as may be said."""
        return self._steps.run(lambda: {a for a, e in self._store.addresses.items() if e > after})

    def close(self) -> None:
        """Nothing is held."""
