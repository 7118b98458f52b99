"""An Iceberg table that exports are appended to, through pyiceberg.

What was exported stands in the properties of the snapshot that added the files, so both become
true in one commit, and a table that is rolled back is exported to from there again. The same stands
in a property of the table, for the day on which that snapshot is expired.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from pipeline.errors import DamagedDataError, PipelineError
from pipeline.jobs.catalog_calls import CALL_S, CatalogCalls, library_errors, said
from pipeline.jobs.table_ledger import CommitConflictError, Seen, Table
from pipeline.jobs.values import (
    NO_DAY,
    Committed,
    DataFile,
    decode_committed,
    encode_committed,
)
from runtime.override import override

_PREFIX: Final = "tidemark.export."
_RETRIES: Final = "commit.retry.num-retries"
_FILE_S: Final = 1.0
"""More time for a commit for each file, whose footer is read."""


class IcebergTable(Table):
    """An Iceberg table; each export of an epoch is one snapshot of it."""

    def __init__(
        self, catalog: Any, identifier: str, topic: str, calls: CatalogCalls | None = None
    ) -> None:
        """Take an opened catalog and a table of it that exists; `calls` are closed with it."""
        self._catalog, self._identifier = catalog, identifier
        self._key = f"{_PREFIX}{topic}"
        self._calls = calls or CatalogCalls(self.name)

    @property
    @override
    def name(self) -> str:
        return f"{self._catalog.name}.{self._identifier}"

    @property
    def location(self) -> str:
        """Where the table's files are."""
        found: str = self._calls.translated(lambda: self._load().location())
        return found.rstrip("/")

    @override
    def mark(self, run: str) -> str:
        return run

    def look(self) -> Seen:
        """Read the last commit from the snapshots of the table.

        The newest snapshot of ours among the ancestors of the current one counts. Where the
        oldest ancestor kept has a parent, snapshots were expired: then the property counts.
        """
        return self._seen(self._calls.translated(self._load))

    def append(
        self, seen: Seen, run: str, committed: Committed, files: Sequence[tuple[str, DataFile]]
    ) -> None:
        """The commit holds only for the snapshot that was looked at.

        Raises:
            PipelineError: the table cannot take the files.
        """
        from pyiceberg.exceptions import BadRequestError, ForbiddenError, UnauthorizedError

        for _, file in files:
            if file.day == NO_DAY:
                raise PipelineError(
                    f"{self.name}: partition {file.partition} has a record between offsets"
                    f" {file.first} and {file.last} of a year before 1 or after 9999:"
                    " an Iceberg table cannot have it, a directory or --delta can"
                )
        error_text = self._properties(Seen(committed, seen.epoch + 1, run))
        addresses = [address for address, _ in files]
        try:
            self._calls(
                partial(self._commit, seen, addresses, error_text),
                within_s=CALL_S + _FILE_S * len(files),
            )
        except (ValueError, BadRequestError, ForbiddenError, UnauthorizedError) as error:
            # columns that do not fit, no permission
            raise PipelineError(f"{self.name} does not take the files: {said(error)}") from error
        except library_errors() as error:
            raise CommitConflictError(f"{self.name}: the commit failed: {said(error)}") from error

    def named_files(self, after: int) -> set[str]:
        """Files that the snapshots name.

        Files of later epochs are added by snapshots behind the newest ancestor that is of epoch
        `after` or earlier, or behind a state that was rolled back. So what that ancestor names is
        none of them, and those that it stands on are not read.
        """
        return self._calls.translated(partial(self._named_files, after))

    def close(self) -> None:
        """Catalogues of older versions of pyiceberg hold nothing."""
        close = getattr(self._catalog, "close", None)
        if close is not None:
            self._calls.translated(close)
        self._calls.close()

    def _load(self) -> Any:
        return self._catalog.load_table(self._identifier)

    def _commit(self, seen: Seen, addresses: list[str], error_text: dict[str, str]) -> None:
        table = self._load()
        if self._seen(table).epoch != seen.epoch:
            raise CommitConflictError(f"{self.name}: another export was faster")
        _without_retries(table)
        with _quiet(), table.transaction() as commit:
            if addresses:
                # Its check opens every manifest of the table. The epoch, names that no other run
                # has, and `not_there` before prove that the files are new.
                commit.add_files(
                    addresses, snapshot_properties=error_text, check_duplicate_files=False
                )
            else:
                nothing = table.schema().as_arrow().empty_table()
                commit.append(nothing, snapshot_properties=error_text)
            commit.set_properties(error_text)

    def _named_files(self, after: int) -> set[str]:
        table = self._load()
        line = list(_ancestors(table))
        epochs = [_error_of(one).get(f"{self._key}.epoch", "") for one in line]
        ours = [n for n, epoch in enumerate(epochs) if epoch.isdecimal() and int(epoch) <= after]
        base = min(ours, default=len(line))
        known = {one.snapshot_id for one in line[base:]}
        manifests = {
            manifest.manifest_path: manifest
            for snapshot in table.metadata.snapshots
            if snapshot.snapshot_id not in known
            for manifest in snapshot.manifests(table.io)
        }
        for manifest in line[base].manifests(table.io) if known else ():
            manifests.pop(manifest.manifest_path, None)
        return {
            entry.data_file.file_path
            for manifest in manifests.values()
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        }

    def _seen(self, table: Any) -> Seen:
        key = self._key
        where = f"{self.name}: property {key}"
        oldest = None
        for snapshot in _ancestors(table):
            said = _error_of(snapshot)
            if f"{key}.epoch" in said:
                return _decode(said, key, where)
            oldest = snapshot
        is_cut = oldest is not None and oldest.parent_snapshot_id is not None
        if is_cut and f"{key}.epoch" in table.properties:
            return _decode(table.properties, key, where)
        return Seen(None, 0, "")

    def _properties(self, seen: Seen) -> dict[str, str]:
        assert seen.committed is not None
        key = self._key
        return {
            f"{key}.epoch": str(seen.epoch),
            f"{key}.run": seen.run,
            f"{key}.committed": encode_committed(seen.committed),
        }


def _ancestors(table: Any) -> Iterator[Any]:
    """The current snapshot and those that it stands on, as far as they are kept."""
    known = {one.snapshot_id: one for one in table.metadata.snapshots}
    at = table.metadata.current_snapshot_id
    while at in known:
        yield known[at]
        at = known[at].parent_snapshot_id


def _error_of(snapshot: Any) -> Mapping[str, str]:
    """Properties of a snapshot."""
    found: Mapping[str, str] = snapshot.summary.additional_properties if snapshot.summary else {}
    return found


def _without_retries(table: Any) -> None:
    """Make a conflict an error: pyiceberg's own retry would commit without looking again.

    Only this process's view of the table is changed; a transaction sends its updates alone.
    """
    properties = {**table.metadata.properties, _RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})


@contextmanager
def _quiet() -> Iterator[None]:
    """Without a warning for each column of each file that has no statistics on purpose."""
    noisy = logging.getLogger("pyiceberg.io.pyarrow")
    before = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        yield
    finally:
        noisy.setLevel(before)


def _decode(said: Any, key: str, where: str) -> Seen:
    try:
        epoch, run, committed = (said[f"{key}.{name}"] for name in ("epoch", "run", "committed"))
        return Seen(decode_committed(committed, where), int(epoch), run)
    except (KeyError, ValueError) as error:
        raise DamagedDataError(f"{where} is incomplete: {error!r}") from error
