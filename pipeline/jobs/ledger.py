"""An export's target: its committed state, and a commit of everything or nothing.

Each run has a name of its own. It begins once and then commits once; whichever way it ends, rows
that are committed stay, and each offset is committed once: `docs/decisions/exports.md`.
"""

from collections.abc import Sequence
from typing import Protocol

from pipeline.jobs.place import Place
from pipeline.jobs.values import Committed, DataFile, Identity


class Ledger(Protocol):
    """A target: a directory, or a table.

    Raises, in every method, OSError or PipelineError where the target does not answer.
    """

    @property
    def place(self) -> Place:
        """Where tasks write files, below `staging`."""
        ...

    @property
    def target(self) -> str:
        """The address of the target in texts for users."""
        ...

    @property
    def suffix(self) -> str:
        """The suffix of the names of written files."""
        ...

    def look(self) -> Committed | None:
        """Return the committed state; None if nothing ever was. Changes nothing."""
        ...

    def has_leftovers(self) -> bool:
        """Whether there are files of runs that did not end; they may still be running."""
        ...

    def begin(self, run: str, identity: Identity) -> Committed:
        """Begin a run: no run that began before can commit any more, its leftovers are removed.

        Raises:
            OptionError: the target holds another topic, or rows of another form.
            OvertakenError: too many others began at the same time.
        """
        ...

    def staging(self, run: str) -> str:
        """The run's own directory in the place."""
        ...

    def commit(self, run: str, committed: Committed, files: Sequence[DataFile]) -> None:
        """Commit the run's files and what the target then holds; done when this returns.

        Called again after any error it finds out whether the first call succeeded.

        Raises:
            OvertakenError: another run began meanwhile; nothing was committed.
            FilesMissingError: some of the files are not there; nothing was committed.
        """
        ...

    def abandon(self, run: str) -> None:
        """Remove the files of a run that will not be committed."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
