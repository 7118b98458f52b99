"""Both kinds of targets in memory, and what a reader of them sees."""

from pipeline.jobs.directory_ledger import STAGING, DirectoryLedger
from pipeline.jobs.ledger import Ledger
from pipeline.jobs.place import Place
from pipeline.jobs.table_ledger import MARKERS, TableLedger
from runtime.executors import InlinePool
from tests.support.export.places import MemoryPlace, SteppedPlace, Steps
from tests.support.export.tables import MemoryStore, MemoryTable
from tests.support.export.topics import rows_of


class DirectoryWorld:
    """A plain directory; readers see what is not below `_tidemark`."""

    def __init__(self) -> None:
        self.place: Place = MemoryPlace()

    def ledger(self, steps: Steps) -> Ledger:
        return DirectoryLedger(SteppedPlace(self.place, steps), moves=InlinePool())

    def rows(self) -> list[tuple[int, int]]:
        paths = self.place.files("day=2026-11-23")
        found = [self.place.read(f"day=2026-11-23/{path}") for path in sorted(paths)]
        return sorted(row for data in found for row in rows_of(data))

    def litter(self) -> list[str]:
        return self.place.names(STAGING)


class TableWorld:
    """A table; readers see the files that it names, and one that is gone is an error."""

    def __init__(self) -> None:
        self.place: Place = MemoryPlace()
        self.store = MemoryStore()

    def ledger(self, steps: Steps) -> Ledger:
        return TableLedger(MemoryTable(self.store, steps), SteppedPlace(self.place, steps))

    def rows(self) -> list[tuple[int, int]]:
        paths = [one.removeprefix("memory://") for one in self.store.addresses]
        return sorted(row for path in paths for row in rows_of(self.place.read(path)))

    def litter(self) -> list[str]:
        named = {one.removeprefix("memory://data/") for one in self.store.addresses}
        unnamed = [path for path in self.place.files("data") if path not in named]
        return self.place.names(MARKERS) + unnamed


World = DirectoryWorld | TableWorld
