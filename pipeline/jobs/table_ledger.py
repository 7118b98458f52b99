"""Commits of a table (Iceberg, Delta): its own log is the only truth of what is committed.

Files are written to where the table will have them, below a directory of the run; until the table
names them no reader sees them. A marker says which runs have not ended, so that the next run finds
what a killed one left: `docs/decisions/exports.md`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from pipeline.errors import PipelineError, StoreUnreachableError
from pipeline.jobs.ledger import Ledger
from pipeline.jobs.place import Place
from pipeline.jobs.values import (
    Committed,
    DataFile,
    FilesMissingError,
    Identity,
    OvertakenError,
    not_there,
)
from runtime.override import override

T = TypeVar("T")

MARKERS: Final = "_tidemark/open"
COMMIT_DEADLINE_S: Final = 120.0


class CommitConflictError(PipelineError):
    """The table changed under a commit, or did not answer: look again, then try again."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of one topic's exports in a table.

    Attributes:
        committed: None if there was none.
        epoch: grows with each commit and each fence of these exports, and with nothing else; 0 if
            there was none.
        run: the mark of the run whose commit or fence is the last; empty if there was none.
    """

    committed: Committed | None
    epoch: int
    run: str


class Table(Protocol):
    """A table that exports of one topic are appended to."""

    @property
    def name(self) -> str:
        """The name of the table in texts for users."""
        ...

    def mark(self, run: str) -> str:
        """The form of a run's name that the table keeps."""
        ...

    def look(self) -> Seen:
        """Read the table again."""
        ...

    def append(
        self, seen: Seen, run: str, committed: Committed, files: Sequence[tuple[str, DataFile]]
    ) -> None:
        """Append files (address and facts) in one commit, if the epoch is still the one seen.

        With no files it is a fence: the epoch grows, and nothing else changes.

        Raises:
            CommitConflictError: nothing was committed, or it is unknown.
        """
        ...

    def named_files(self, after: int) -> set[str]:
        """Addresses of files that any state of the table names, older ones included.

        Args:
            after: all that commits of later epochs added are needed; others may be omitted.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class TableLedger(Ledger):
    """The ledger of an export to a table, whose own log has the commits."""

    def __init__(
        self, table: Table, place: Place, *, deadline_s: float = COMMIT_DEADLINE_S
    ) -> None:
        """Take the table, and the place of its files.

        Args:
            table: opened, or made.
            place: a directory for the exports of one topic to this table.
            deadline_s: how long a commit is tried again.
        """
        self._table, self._place, self._deadline_s = table, place, deadline_s
        self._began: dict[str, int] = {}
        self._found: dict[str, Committed] = {}

    @property
    @override
    def place(self) -> Place:
        return self._place

    @property
    @override
    def target(self) -> str:
        return self._table.name

    @property
    @override
    def suffix(self) -> str:
        return ".parquet"

    def staging(self, run: str) -> str:
        """Files stay there."""
        return f"data/{_directory(self._began[run], run)}"

    @override
    def look(self) -> Committed | None:
        return self._table.look().committed

    @override
    def has_leftovers(self) -> bool:
        return bool(self._place.names(MARKERS))

    def begin(self, run: str, identity: Identity) -> Committed:
        """Begin a run, in this order.

        1. The marker is made before any file, and names the epoch that was seen.
        2. Where there are other markers, the epoch is raised: none of their runs can commit now.
           This fails where one of them is of a later epoch than was seen.
        3. Only then is the table asked which of their files it names; the others are removed.
        """

        def attempt() -> Committed:
            seen = self._table.look()
            committed = seen.committed or Committed(identity)
            identity.check(committed.identity, self.target)
            self._mark(run, seen.epoch)
            others = [
                one for one in self._place.names(MARKERS) if one != _directory(seen.epoch, run)
            ]
            if others:
                self._table.append(seen, run, committed, ())
                self._mark(run, seen.epoch + 1)
                self._clear(others)
            self._found[run] = committed
            return committed

        return self._retried(attempt)

    @override
    def commit(self, run: str, committed: Committed, files: Sequence[DataFile]) -> None:
        began, found = self._began[run], self._found[run]
        staging = self.staging(run)
        named = [(self._place.location(f"{staging}/{one.staged}"), one) for one in files]

        def attempt() -> None:
            seen = self._table.look()
            if (seen.run, seen.epoch) == (self._table.mark(run), began + 1):
                return  # an earlier call succeeded, its answer was lost
            if seen.epoch != began:
                raise OvertakenError(
                    f"{self.target}: another export began or committed meanwhile, so this one"
                    " ends; what it had not committed will be exported by the other"
                )
            if (seen.committed or Committed(found.identity)) != found:
                raise OvertakenError(
                    f"{self.target}: the table was rolled back meanwhile, so this export ends and"
                    " commits nothing: run it again, it continues from the state rolled back to"
                )
            wrong = not_there(files, self._place.files(staging) if files else {}, self.target)
            if wrong is not None:
                if self._table.look().epoch == began:
                    raise FilesMissingError(wrong)
                raise CommitConflictError(wrong)  # a later run removed them: looked at again
            self._table.append(seen, run, committed, named)

        self._retried(attempt)
        kept = {one.staged for one in files}
        for path in self._place.files(staging):
            if path not in kept:  # of attempts of tasks that were made again
                self._place.remove(f"{staging}/{path}")
        self._place.remove(f"{MARKERS}/{_directory(began, run)}")

    def abandon(self, run: str) -> None:
        """Only what the table does not name is removed."""
        if run in self._began:
            self._clear([_directory(self._began[run], run)])  # once: somebody waits for the error

    @override
    def close(self) -> None:
        self._table.close()

    def _mark(self, run: str, epoch: int) -> None:
        """Say that a run has begun in an epoch; it has no files yet."""
        self._place.create(f"{MARKERS}/{_directory(epoch, run)}", b"")
        earlier = self._began.get(run)
        self._began[run] = epoch
        if earlier is not None and earlier != epoch:
            self._place.remove(f"{MARKERS}/{_directory(earlier, run)}")

    def _clear(self, runs: Sequence[str]) -> None:
        """Remove the files of ended runs that the table does not name, then their markers.

        A run commits under an epoch later than that of its marker.
        """
        after = min(_epoch_of(run) for run in runs)
        named = {_last_two(address) for address in self._table.named_files(after)}
        for run in runs:
            for path in self._place.files(f"data/{run}"):
                if _last_two(f"{run}/{path}") not in named:
                    self._place.remove(f"data/{run}/{path}")
            self._place.remove(f"{MARKERS}/{run}")

    def _retried(self, attempt: Callable[[], T]) -> T:
        retrying = Retrying(
            stop=stop_after_delay(self._deadline_s),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            retry=retry_if_exception_type((CommitConflictError, StoreUnreachableError)),
            reraise=True,
        )
        return retrying(attempt)


def _directory(epoch: int, run: str) -> str:
    return f"{epoch:020}-{run}"


def _epoch_of(directory: str) -> int:
    """Of a run's directory or marker; -1, before all, for a name that is none of ours."""
    epoch = directory.partition("-")[0]
    return int(epoch) if epoch.isdecimal() else -1


def _last_two(address: str) -> str:
    """Directory of a run and name of a file: unique, however an address is spelled."""
    return "/".join(address.split("/")[-2:])
