"""Commits of a plain directory: a log of numbered entries, each made by one writer or none.

The entry is the commit; the files it names are then moved to where readers look, by this run or,
if it is killed, by the next. So readers of the directory see committed files only, and each once.
The argument, step by step, is in `docs/decisions/exports.md`.
"""

import re
from collections.abc import Sequence
from typing import Final

from pipeline.errors import DamagedDataError
from pipeline.jobs.ledger import Ledger
from pipeline.jobs.place import Place
from pipeline.jobs.values import (
    Committed,
    DataFile,
    FilesMissingError,
    Identity,
    OvertakenError,
    Record,
    not_there,
)
from runtime.executors import Pool, ThreadPool
from runtime.override import override

LOG: Final = "_tidemark/log"
STAGING: Final = "_tidemark/staging"
_NAME: Final = re.compile(r"(\d{20})\.json")
_TRIES: Final = 20
_MOVES_AT_ONCE: Final = 8


class DirectoryLedger(Ledger):
    """The ledger of an export to a directory: an entry for each committed run."""

    def __init__(self, place: Place, *, moves: Pool | None = None) -> None:
        """Take the directory; `moves` runs what moves files, a few threads if not given."""
        self._place, self._moves = place, moves
        self._began: dict[str, int] = {}

    @property
    @override
    def place(self) -> Place:
        return self._place

    @property
    @override
    def target(self) -> str:
        return self._place.url

    @property
    def suffix(self) -> str:
        """No pattern like `**/*.parquet` finds files that are not committed."""
        return ".parquet.staged"

    @override
    def staging(self, run: str) -> str:
        return _staging(self._began[run], run)

    @override
    def look(self) -> Committed | None:
        last = self._last()
        return None if last is None else last.committed

    @override
    def has_leftovers(self) -> bool:
        return bool(self._place.names(STAGING))

    def begin(self, run: str, identity: Identity) -> Committed:
        """Begin a run, in this order.

        1. The last entry's files are in place before the next entry is made, so no entry but the
           last can have files that are still to be moved.
        2. Once the entry is made, no other run can commit: its number is taken.
        3. Only then are files of runs that began before removed; no entry can name them any more.
           Later ones are left alone: a slow process may do this after another began.
        """
        for _ in range(_TRIES):
            last = self._last()
            number, committed = 1, Committed(identity)
            if last is not None:
                identity.check(last.committed.identity, self.target)
                self._move(last)
                number, committed = last.number + 1, last.committed
            entry = Record(number, run, committed)
            if self._create(entry):
                self._began[run] = number
                for name in self._place.names(STAGING):
                    if name < f"{number:020}":
                        self._place.remove(f"{STAGING}/{name}")
                return committed
        raise OvertakenError(
            f"{self.target}: {_TRIES} other exports began at the same time: run one at a time"
        )

    def commit(self, run: str, committed: Committed, files: Sequence[DataFile]) -> None:
        """Make the entry of a run, and move its files into place.

        The files are looked for first: an entry that names a missing file would lose its rows. They
        may be gone because the entry of this run, or of a later one, exists.
        """
        began = self._began[run]
        entry = Record(began + 1, run, committed, tuple(files))
        staged = self._place.files(self.staging(run)) if files else {}
        wrong = not_there(files, staged, self.target)
        if wrong is not None:
            last = self._last()
            if last is None or last.number <= began:
                raise FilesMissingError(wrong)
        if not self._create(entry):
            raise OvertakenError(
                f"{self.target}: another export began meanwhile, so this one ends; what it had"
                " not committed will be exported by the other"
            )
        self._move(entry)
        self._place.remove(self.staging(run))

    @override
    def abandon(self, run: str) -> None:
        if run in self._began:
            self._place.remove(self.staging(run))

    def close(self) -> None:
        """Nothing is held."""

    def _last(self) -> Record | None:
        names = [name for name in self._place.names(LOG) if _NAME.fullmatch(name)]
        if not names:
            return None
        path = f"{LOG}/{names[-1]}"
        entry = Record.decode(self._place.read(path), f"{self.target}/{path}")
        if names[-1] != _file_name(entry.number):
            raise DamagedDataError(
                f"{self.target}/{path} says that it is number {entry.number}: restore the log"
            )
        return entry

    def _create(self, entry: Record) -> bool:
        """Whether the entry is there now and is ours: an answer may have been lost before."""
        path, data = f"{LOG}/{_file_name(entry.number)}", entry.encode()
        return self._place.create(path, data) or self._place.read(path) == data

    def _move(self, entry: Record) -> None:
        """Put the files of a commit in place; some or all of them may be there already."""
        staging = _staging(entry.number - 1, entry.run)
        staged = self._place.files(staging) if entry.files else {}
        waiting = [one for one in entry.files or () if one.staged in staged]
        pool = self._moves or ThreadPool("export-moves", _MOVES_AT_ONCE)
        try:
            moves = [
                pool.submit(self._place.move, f"{staging}/{one.staged}", one.name)
                for one in waiting
            ]
            for move in moves:
                move.result()
        finally:
            pool.shutdown()


def _file_name(number: int) -> str:
    return f"{number:020}.json"


def _staging(began: int, run: str) -> str:
    return f"{STAGING}/{began:020}-{run}"
