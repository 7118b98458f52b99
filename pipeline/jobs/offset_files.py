"""Files with the offsets of a table's commits, for a table whose own log has no room for them.

A file is written before the commit that names it (by an epoch and a run) and never again; one that
no commit names means nothing. Must not know: what kind of table it is.
"""

from typing import Final

from pipeline.errors import DamagedDataError, PipelineError
from pipeline.jobs.place import Place
from pipeline.jobs.values import Committed, decode_committed, encode_committed

DIRECTORY: Final = "offsets"


class OffsetFiles:
    """Files of the exports of one topic to one table."""

    def __init__(self, place: Place) -> None:
        """Take a place of their own, which nothing cleans up."""
        self._place = place

    def write(self, epoch: int, mark: str, committed: Committed) -> None:
        """Make the file of a commit; it is durable when this returns.

        The same file may be there from an earlier attempt.

        Raises:
            PipelineError: it is there with other offsets.
        """
        path, data = _path(epoch, mark), encode_committed(committed).encode()
        if not self._place.create(path, data) and self._place.read(path) != data:
            raise PipelineError(
                f"{self._place.url}/{path} has other offsets than this run: the table was rolled"
                " back while it ran; run the export again, which writes another file"
            )

    def read(self, epoch: int, mark: str) -> Committed:
        """What a commit said.

        Raises:
            DamagedDataError: its file is not there, or damaged.
        """
        path = _path(epoch, mark)
        where = f"{self._place.url}/{path}"
        try:
            return decode_committed(self._place.read(path), where)
        except FileNotFoundError:
            raise DamagedDataError(
                f"{where} is not there, so what is exported is not known: bring the file back,"
                " or restore the table to a version whose file is there, or export to another table"
            ) from None


def _path(epoch: int, mark: str) -> str:
    return f"{DIRECTORY}/{epoch:020}-{mark}.json"
